"""The public coroutines of a broker, each made ready to be cancelled at any point, and what has to hold afterwards.

Each entry of `CALLS` prepares what the call needs and returns the call. The queue `orders` has the groups `default` and
`audit` and is empty before each; `Prepared.held` collects the leases that the test itself holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any, Final

from godwit.brokers.contract import Ack, Broker, Delivery, GiveUp, HandBack, LetterId, Nack
from godwit.core.failures.failure import FailureKind
from godwit.core.journal.shards import Position, shard_name
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from tests.cancellation import cancelled_everywhere
from tests.conformance.harness import LONG, MOMENT, G, Harness, Q
from tests.waiting import eventually

AUDIT: Final = GroupName("audit")
OTHER: Final = QueueName("other")
WITHIN: Final = timedelta(seconds=10)
"""For what a cancelled call leaves to the background: no lease of these tests ends by itself."""

Made = Callable[[], Awaitable[object]]


@dataclass
class Prepared:
    """A backend before a call, and the leases that are held there."""

    harness: Harness
    held: list[Delivery] = field(default_factory=list)
    numbers: count[int] = field(default_factory=count)

    @property
    def broker(self) -> Broker:
        """The broker whose calls are cancelled."""
        return self.harness.broker

    def id(self) -> str:
        """Return an id that no message had before."""
        return f"m{next(self.numbers)}"

    async def published(self, many: int, **fields: Any) -> list[str]:
        """Publish messages and return their ids."""
        ids = [self.id() for _ in range(many)]
        await self.harness.publish(*ids, **fields)
        return ids

    async def leased(self, many: int, **fields: Any) -> list[Delivery]:
        """Publish messages and lease them."""
        await self.published(many, **fields)
        found = await self.harness.pull(many, lease=LONG)
        assert len(found) == many
        self.held += found
        return found

    def pulling(self, limit: int, **options: Any) -> Made:
        """Return a pull whose deliveries are held when it gets to its end."""

        async def call() -> None:
            self.held += await self.harness.pull(limit, lease=LONG, **options)

        return call

    async def lettered(self, many: int) -> list[LetterId]:
        """Return the ids of so many dead letters."""
        for delivery in await self.leased(many):
            await self.harness.give_up(delivery)
        return [letter.id for letter in await self.harness.letters()]


Prepare = Callable[[Prepared], Awaitable[Made]]
CALLS: Final[dict[str, Prepare]] = {}
MAY_RETURN: Final = frozenset({"close", "listen"})
"""Calls that may come to their end although they were cancelled."""


def prepared(prepare: Prepare) -> Prepare:
    """Add an entry to `CALLS` under the name of its function."""
    CALLS[prepare.__name__] = prepare
    return prepare


@prepared
async def publish_one(p: Prepared) -> Made:
    envelope = p.harness.envelope(p.id())
    return lambda: p.broker.publish([envelope])


@prepared
async def publish_many(p: Prepared) -> Made:
    envelopes = [p.harness.envelope(p.id()) for _ in range(450)]
    return lambda: p.broker.publish(envelopes)


@prepared
async def publish_delayed(p: Prepared) -> Made:
    envelopes = [p.harness.envelope(p.id(), due=LONG), p.harness.envelope(p.id(), expires=LONG)]
    return lambda: p.broker.publish(envelopes)


@prepared
async def pull(p: Prepared) -> Made:
    await p.published(5)
    return p.pulling(3)


@prepared
async def pull_in_parts(p: Prepared) -> Made:
    await p.published(250)
    return p.pulling(250)


@prepared
async def pull_nothing(p: Prepared) -> Made:
    return p.pulling(3)


@prepared
async def pull_that_waits(p: Prepared) -> Made:
    pulling = p.pulling(1, wait=LONG)

    async def call() -> None:
        coming = asyncio.create_task(p.published(1))
        try:
            await pulling()
        finally:
            await asyncio.shield(coming)

    return call


@prepared
async def pull_that_waits_in_vain(p: Prepared) -> Made:
    return p.pulling(1, wait=MOMENT)


@prepared
async def listen(p: Prepared) -> Made:
    async def call() -> None:
        listener = p.broker.listen([(Q, G), (Q, AUDIT)])
        try:
            listener.clear()
            await listener.wait(MOMENT)
        finally:
            listener.close()

    return call


@prepared
async def ack(p: Prepared) -> Made:
    found = await p.leased(5)
    return lambda: p.broker.settle([Ack(delivery.ack_id, run_ms=1) for delivery in found])


@prepared
async def settle_each_way(p: Prepared) -> Made:
    first, second, third, fourth = await p.leased(4)
    error = p.harness.error("no such user")
    return lambda: p.broker.settle(
        [
            Ack(first.ack_id, result=b"done"),
            Nack(second.ack_id, LONG, error),
            GiveUp(third.ack_id, FailureKind.PERMANENT, error),
            HandBack(fourth.ack_id),
        ]
    )


@prepared
async def extend(p: Prepared) -> Made:
    found = await p.leased(5)
    return lambda: p.broker.extend([delivery.ack_id for delivery in found], LONG)


@prepared
async def cancel(p: Prepared) -> Made:
    _, second, _ = await p.published(3)
    return lambda: p.broker.cancel(Q, second)


@prepared
async def purge(p: Prepared) -> Made:
    await p.published(3)
    return lambda: p.broker.purge(Q)


@prepared
async def declare(p: Prepared) -> Made:
    await p.broker.remove(OTHER)
    return lambda: p.broker.declare(QueueSpec(name=OTHER), [GroupSpec(name=G), GroupSpec(name=AUDIT)])


@prepared
async def declare_again(p: Prepared) -> Made:
    return lambda: p.broker.declare(QueueSpec(name=Q), [GroupSpec(name=G, max_crashes=3 + next(p.numbers))])


@prepared
async def remove(p: Prepared) -> Made:
    await p.harness.publish(p.id(), queue=OTHER)
    return lambda: p.broker.remove(OTHER)


@prepared
async def remove_a_group(p: Prepared) -> Made:
    await p.broker.declare(QueueSpec(name=OTHER), [GroupSpec(name=AUDIT)])
    return lambda: p.broker.remove(OTHER, AUDIT)


@prepared
async def maintain(p: Prepared) -> Made:
    await p.published(3, expires=timedelta(milliseconds=-1))
    await p.broker.shared.put(p.id(), b"x", expected=None, ttl=timedelta(0))
    return p.broker.maintain


@prepared
async def stats(p: Prepared) -> Made:
    return p.broker.stats


@prepared
async def letters_page(p: Prepared) -> Made:
    await p.lettered(2)
    return p.harness.letters


@prepared
async def letters_replay(p: Prepared) -> Made:
    letters = await p.lettered(2)
    return lambda: p.broker.dead_letters.replay(letters)


@prepared
async def letters_discard(p: Prepared) -> Made:
    letters = await p.lettered(2)
    return lambda: p.broker.dead_letters.discard(letters)


@prepared
async def journal_shards(p: Prepared) -> Made:
    return p.broker.journal.shards


@prepared
async def journal_read(p: Prepared) -> Made:
    return lambda: p.broker.journal.read(shard_name(Q), None, limit=10)


@prepared
async def journal_trim(p: Prepared) -> Made:
    return p.broker.journal.trim


async def _position(p: Prepared) -> Position:
    ends = (await p.broker.journal.shards())[shard_name(Q)]
    return Position(ends.epoch, ends.last_seq)


@prepared
async def journal_commit(p: Prepared) -> Made:
    position = await _position(p)
    return lambda: p.broker.journal.commit("reader", shard_name(Q), position)


@prepared
async def journal_committed(p: Prepared) -> Made:
    await p.broker.journal.commit("reader", shard_name(Q), await _position(p))
    return lambda: p.broker.journal.committed("reader")


@prepared
async def journal_forget(p: Prepared) -> Made:
    await p.broker.journal.commit("reader", shard_name(Q), await _position(p))
    return lambda: p.broker.journal.forget("reader")


@prepared
async def journal_snapshot(p: Prepared) -> Made:
    await p.leased(2)
    return lambda: p.broker.journal.snapshot(Q)


@prepared
async def shared_get(p: Prepared) -> Made:
    return lambda: p.broker.shared.get("x")


@prepared
async def shared_put(p: Prepared) -> Made:
    key = p.id()
    return lambda: p.broker.shared.put(key, b"one", expected=None, ttl=LONG)


@prepared
async def shared_delete(p: Prepared) -> Made:
    await p.broker.shared.put(key := p.id(), b"one", expected=None)
    return lambda: p.broker.shared.delete(key)


@prepared
async def shared_scan(p: Prepared) -> Made:
    return lambda: p.broker.shared.scan("m", limit=3)


@prepared
async def shared_clear(p: Prepared) -> Made:
    return lambda: p.broker.shared.clear("m", "n")


@prepared
async def open_and_close(p: Prepared) -> Made:
    async def call() -> None:
        async with p.harness.unopened() as broker:
            await broker.stats()

    return call


@prepared
async def close(p: Prepared) -> Made:
    broker = await p.harness.another()
    return broker.close


async def cancelled(harness: Harness, prepare: Prepare) -> int:
    """Cancel a call at each of its suspensions, look after each whether all is well; return how many there were."""
    await harness.declare(G, AUDIT)
    await harness.declare(G, queue=OTHER)
    p = Prepared(harness)
    call = await prepare(p)

    def present() -> Awaitable[object]:
        return call()

    async def check() -> None:
        nonlocal call
        await _is_well(p)
        call = await prepare(p)

    return await cancelled_everywhere(present, check, may_return=prepare.__name__ in MAY_RETURN)


async def _is_well(p: Prepared) -> None:
    """See that no lease has no owner, no connection is in use, and a message goes through."""
    harness = p.harness
    async with asyncio.timeout(WITHIN.total_seconds()):
        if harness.is_closed:
            await harness.restart()
        await harness.declare(G, AUDIT)
        await harness.declare(G, queue=OTHER)
        held, p.held = p.held, []
        await harness.broker.settle([Ack(delivery.ack_id) for delivery in held])

    async def nothing_leased() -> bool:
        return all(group.leased == 0 for queue in await harness.broker.stats() for group in queue.groups)

    await eventually(nothing_leased, within=WITHIN, what="every lease has come back")
    await eventually(lambda: harness.busy_connections == 0, within=WITHIN, what="every connection is free")
    async with asyncio.timeout(WITHIN.total_seconds()):
        await harness.broker.purge(Q)
        await harness.broker.dead_letters.discard([letter.id for letter in await harness.letters()])
        fresh = p.id()
        await harness.publish(fresh)
        for group in (G, AUDIT):
            assert await harness.ids(group=group, lease=LONG) == [fresh]
        assert [group.depth for group in (await harness.queue_stats()).groups] == [0, 0]
        assert await harness.broker.maintain() == 0
