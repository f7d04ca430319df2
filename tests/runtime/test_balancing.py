"""How the members of a group share its work, and the cap over all of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.brokers.memory import MemoryBroker
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.queues import FlowControl, GroupSpec, QueueSpec
from godwit.core.settings import LoadBalancing
from godwit.runtime.worker.balance import Share, credits_of
from godwit.runtime.worker.consumer import Consumer
from godwit.runtime.worker.worker import Worker, WorkerSettings
from tests.waiting import eventually

SIZES = {"small": 2, "large": 6}
BEAT = timedelta(milliseconds=20)


class GroupMembers:
    """Two workers of one group, of different size, whose handlers never end by themselves."""

    def __init__(self, broker: MemoryBroker, balancing: LoadBalancing, cap: int | None) -> None:
        self.broker = broker
        self.running: Counter[str] = Counter()
        self.most = 0
        self.go = asyncio.Event()
        self.workers = {name: self._worker(name, size, balancing, cap) for name, size in SIZES.items()}

    def _worker(self, name: str, size: int, balancing: LoadBalancing, cap: int | None) -> Worker:
        async def handle(_message: Message) -> None:
            self.running[name] += 1
            self.most = max(self.most, self.running.total())
            await self.go.wait()
            self.running[name] -= 1

        consumer = Consumer(
            handler=handle, queues=("orders",), concurrency=size, load_balancing=balancing, max_concurrency=cap
        )
        return Worker(self.broker, [consumer], name=name, settings=WorkerSettings(heartbeat_interval=BEAT))

    def credits(self) -> dict[str, int]:
        """Return what each may hold by now."""
        return {name: worker._pullers[0]._credits.now for name, worker in self.workers.items() if worker._pullers}


@asynccontextmanager
async def members(balancing: LoadBalancing, cap: int | None, expected: dict[str, int]) -> AsyncIterator[GroupMembers]:
    """Run both workers, let them get to know each other, and publish more than they can hold."""
    async with MemoryBroker() as broker:
        flow = FlowControl(max_messages=cap)
        await broker.declare(QueueSpec(name="orders"), [GroupSpec(name="default", flow_control=flow)])
        made = GroupMembers(broker, balancing, cap)
        tasks = [asyncio.create_task(worker.run()) for worker in made.workers.values()]
        await eventually(lambda: made.credits() == expected, what=f"credits of {expected}")
        await broker.publish([seal(Message(queue="orders")) for _ in range(40)])
        try:
            yield made
        finally:
            made.go.set()
            for worker in made.workers.values():
                worker.stop()
            await asyncio.gather(*tasks)


async def test_round_robin_gives_every_member_the_same_part_of_the_groups_cap() -> None:
    async with members(LoadBalancing.ROUND_ROBIN, 4, {"small": 2, "large": 2}) as made:
        await eventually(lambda: made.running == {"small": 2, "large": 2})


async def test_round_robin_without_a_cap_gives_every_member_what_the_smallest_can_do() -> None:
    async with members(LoadBalancing.ROUND_ROBIN, None, {"small": 2, "large": 2}) as made:
        await eventually(lambda: made.running == {"small": 2, "large": 2})


async def test_weighted_divides_the_groups_cap_by_concurrency() -> None:
    async with members(LoadBalancing.WEIGHTED, 4, {"small": 1, "large": 3}) as made:
        await eventually(lambda: made.running == {"small": 1, "large": 3})


async def test_least_connections_gives_to_whoever_has_free_slots() -> None:
    async with members(LoadBalancing.LEAST_CONNECTIONS, None, {"small": 2, "large": 6}) as made:
        await eventually(lambda: made.running == {"small": 2, "large": 6})


@pytest.mark.parametrize("balancing", list(LoadBalancing))
async def test_the_cap_holds_over_all_workers_of_the_group(balancing: LoadBalancing) -> None:
    expected = {
        LoadBalancing.LEAST_CONNECTIONS: {"small": 2, "large": 6},
        LoadBalancing.ROUND_ROBIN: {"small": 1, "large": 2},
        LoadBalancing.WEIGHTED: {"small": 1, "large": 2},
    }[balancing]
    async with members(balancing, 3, expected) as made:
        await eventually(lambda: made.running.total() == 3)
        (stats,) = await made.broker.stats()
        assert stats.groups[0].leased == 3
        made.go.set()

        async def done() -> bool:
            (now,) = await made.broker.stats()
            return now.groups[0].depth == 0

        await eventually(done)
        assert made.most == 3


async def test_what_a_member_leaves_behind_is_shared_out_again() -> None:
    async with members(LoadBalancing.ROUND_ROBIN, 4, {"small": 2, "large": 2}) as made:
        await eventually(lambda: made.running == {"small": 2, "large": 2})
        for _ in range(2):  # the second leaves without waiting for handlers
            made.workers["small"].stop()
        await eventually(lambda: made.credits()["large"] == 4)
        made.go.set()


SHARES = st.lists(st.integers(1, 50), min_size=1, max_size=8).map(
    lambda sizes: [Share(f"w{number}", size) for number, size in enumerate(sizes)]
)


@given(SHARES, st.sampled_from(LoadBalancing), st.one_of(st.none(), st.integers(1, 200)))
def test_credits_never_exceed_a_members_slots_and_use_the_cap_up(
    members: list[Share], balancing: LoadBalancing, cap: int | None
) -> None:
    found = [credits_of(mine, members, balancing, cap) for mine in members]
    assert all(1 <= one <= mine.concurrency for one, mine in zip(found, members, strict=True))
    if balancing is LoadBalancing.ROUND_ROBIN and cap is not None and cap >= len(members):
        fair = {-(-cap // len(members)), cap // len(members)}
        assert all(one in fair or one == mine.concurrency for one, mine in zip(found, members, strict=True))
    if balancing is LoadBalancing.WEIGHTED and cap is not None and cap >= len(members):
        heavier = sorted(zip(members, found, strict=True), key=lambda pair: pair[0].concurrency)
        assert all(one[1] <= other[1] + 1 for one, other in pairwise(heavier))
