"""A crash of the client before and after each script it sends: the step it hit is there as a whole or not at all."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

from godwit.brokers.contract import Ack
from godwit.brokers.memory import MemoryBroker
from godwit.brokers.redis.client import client as redis_calls
from godwit.brokers.redis.listen import prefetch as redis_fetches
from godwit.brokers.urls import connect
from godwit.core.fault_points import killer
from tests.conformance.harness import LONG, G, Q
from tests.faults.child_processes import ChildProcesses
from tests.faults.reconciliation import agreeing
from tests.faults.record import Record, read
from tests.faults.remote_harness import remote
from tests.faults.scenario import DEAD, Life, message, state
from tests.servers.redis import RedisServer, fresh
from tests.waiting import eventually

UNREACHED = {"forget", "grown", "recount", "snapshot", "stats"}
"""Scripts that this life does not send: they change nothing, or only what was damaged, or late."""
SCRIPTS = sorted(
    path.name.removesuffix(".lua")
    for path in (files("godwit.brokers.redis") / "lua").iterdir()
    if not path.name.startswith("_")
)
CRASHES = [f"redis.{when}_{name}" for name in SCRIPTS if name not in UNREACHED for when in ("before", "after")]
State = dict[str, Any]


PARTLY = {"redis.after_cancel"}
"""Cancelling goes through groups and pages call by call; what is left is cancelled by asking again."""


class LongerLife(Life):
    """Ends with messages that are ready at once, acks in a group without order, and one for which a worker waits.

    All of them have fast scripts.
    """

    url = ""
    """Where the server is, for a broker that has one."""

    def blocked(self) -> int:
        """Return how many connections wait on the server."""
        if not self.url:
            return 0
        with redis.Redis.from_url(self.url) as client:
            return int(client.info("clients")["blocked_clients"])

    async def publish_plainly(self) -> None:
        await self.broker.publish([msgspec.structs.replace(message(number), queue=DEAD) for number in range(300, 303)])

    async def ack_plainly(self) -> None:
        held = await self.broker.pull(DEAD, G, worker="one", limit=2, lease=LONG)
        assert len(held) == 2
        assert self.changed is not None
        await self.changed()
        assert await self.broker.settle([Ack(delivery.ack_id, run_ms=1) for delivery in held]) == []

    async def take_the_rest(self) -> None:
        held = await self.broker.pull(DEAD, G, worker="one", limit=100, lease=LONG)
        assert self.changed is not None
        await self.changed()
        assert await self.broker.settle([Ack(delivery.ack_id, run_ms=1) for delivery in held]) == []

    async def wait_for_one(self) -> None:
        before = self.blocked()
        waiting = asyncio.create_task(self.broker.pull(DEAD, G, worker="one", limit=2, lease=LONG, wait=LONG))
        if self.url:
            await eventually(lambda: self.blocked() > before, what="a pull that waits on the server")
        await self.broker.publish([msgspec.structs.replace(message(303), queue=DEAD)])
        assert self.changed is not None
        await self.changed()
        assert len(await waiting) == 1

    def steps(self) -> list[Callable[[], Awaitable[None]]]:
        return [
            *super().steps(),
            self.publish_plainly,
            self.ack_plainly,
            self.take_the_rest,
            self.wait_for_one,
        ]


async def unchanged() -> None:
    """Between the parts of a step nothing is looked at here."""


def live(url: str, record: Path, *, crash: str) -> None:
    """Live the whole scenario, or until the point `crash` names."""
    vars(redis_calls)["fault_point"] = vars(redis_fetches)["fault_point"] = killer(
        crash
    )  # forked: the variable was read before
    LongerLife.url = url
    asyncio.run(_live(url, Record(record)))


async def _live(url: str, record: Record) -> None:
    async with connect(url) as broker:
        for step in LongerLife(broker, None, unchanged).steps():
            await step()
            record.write((step.__name__,))


async def states_of_a_whole_life() -> list[list[State]]:
    """Return the states the reference broker goes through: for each step those inside it and the one after it."""
    states: list[list[State]] = []
    async with MemoryBroker() as broker:

        async def changed() -> None:
            states[-1].append(await state(broker))

        for step in LongerLife(broker, None, changed).steps():
            states.append([])
            await step()
            await changed()
    return states


@cache
def reference() -> list[list[State]]:
    """Return them, lived once."""
    return asyncio.run(states_of_a_whole_life())


@pytest.fixture(scope="module")
def states() -> list[list[State]]:
    return reference()


async def found_on(server: RedisServer) -> State:
    async with connect(server.url) as broker:
        return await state(broker)


@pytest.mark.parametrize("crash", CRASHES)
async def test_a_crash_leaves_the_step_it_hit_whole_or_absent(
    crash: str, tmp_path: Path, children: ChildProcesses, states: list[list[State]]
) -> None:
    server = fresh()
    victim = children.start(live, server.url, tmp_path / "steps", crash=crash)
    await eventually(lambda: not victim.is_alive(), within=timedelta(seconds=60), what="the crash")
    assert victim.exitcode == -signal.SIGKILL, f"{crash} was not reached"
    finished = len(read(tmp_path / "steps"))
    before = states[finished - 1][-1] if finished else {"events": {}, "stats": [], "shared": None}
    if crash in PARTLY:
        async with connect(server.url) as broker:
            await LongerLife(broker, None, unchanged).steps()[finished]()
            assert await state(broker) == states[finished][-1]
    assert await found_on(server) in [before, *states[finished]]
    if finished:
        async with remote(server.url) as harness:
            assert Q in [queue.name for queue in await harness.broker.stats()]
            await agreeing(harness)


async def test_a_life_without_a_crash_ends_as_the_reference_does(
    tmp_path: Path, children: ChildProcesses, states: list[list[State]]
) -> None:
    server = fresh()
    await children.finished(children.start(live, server.url, tmp_path / "steps", crash=""))
    assert await found_on(server) == states[-1][-1]
