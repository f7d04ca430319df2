"""The ledger's judgement about copies that come from RabbitMQ, without a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from godwit.brokers.rabbitmq.ledger import declaring, ending, letters, pages, sending
from godwit.brokers.rabbitmq.ledger.ending import Burial, Done, Return
from godwit.brokers.rabbitmq.ledger.file import LedgerFile
from godwit.brokers.rabbitmq.ledger.letters import Found
from godwit.brokers.rabbitmq.ledger.sending import Plan
from godwit.brokers.rabbitmq.ledger.taking import Lease, Taken, Taker
from godwit.brokers.rabbitmq.parcels import Parcel, card_of
from godwit.core.clock import ManualClock
from godwit.core.failures.failure import FailureKind
from godwit.core.journal.vocabulary import Event
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message
from godwit.core.queues import GroupSpec, QueueSpec
from tests.conformance.harness import G, Q

tokens = (f"t{number}" for number in count(1))


class Books:
    """A ledger in a file of its own, and the steps of one message's life."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.file = LedgerFile(path, clock=self.clock)

    async def open(self) -> None:
        await self.file.open()
        spec = QueueSpec(name=Q)
        await self.file.step(lambda books: declaring.declare(books, spec, [GroupSpec(name=G)]))

    async def reserve(self, *ids: str) -> Plan:
        chunk = [self.message(name) for name in ids]
        return await self.file.step(lambda books: sending.reserve(books, chunk, moved=False))

    async def publish(self, *ids: str) -> Plan:
        plan = await self.reserve(*ids)
        await self.file.step(lambda books: sending.accepted(books, plan, body=False))
        return plan

    @staticmethod
    def message(name: str) -> Envelope:
        return seal(Message(id=name, queue=Q))

    @staticmethod
    def parcel(plan: Plan, index: int = 0, *, turn: int = 0, redelivered: bool = False) -> Parcel:
        one = plan.fresh[index]
        card = card_of(one.envelope, epoch=plan.epoch, seq=one.seq, ready_at_ms=0, expiry_ms=0, group=None)
        return Parcel(1, redelivered, int(redelivered), one.envelope, msgspec.structs.replace(card, turn=turn))

    async def take(self, *parcels: Parcel) -> Taken:
        def step(books: Any) -> Taken:
            taker = Taker(books, Q, G, worker="w", lease_ms=1_000, limit=10, max_bytes=None, tokens=tokens, body=False)
            return taker.take(parcels)

        return await self.file.step(step)

    async def counts(self) -> tuple[int, int, int, int]:
        ((group,),) = [stats.groups for stats in await self.file.step(pages.stats)]
        return group.ready, group.leased, group.dead, group.bytes

    async def acked(self, *leases: Lease) -> list[Lease]:
        return await self.file.step(lambda books: ending.acked(books, [Done(one, 1, None) for one in leases]))

    async def bury(self, lease: Lease, found: Sequence[Found]) -> int:
        await self.file.step(lambda books: ending.buried(books, [Burial(lease, FailureKind.PERMANENT)]))
        return await self.file.step(lambda books: letters.take_over(books, Q, found, body=False), durable=True)


@pytest.fixture
async def books(tmp_path: Path) -> AsyncIterator[Books]:
    books = Books(tmp_path / "ledger.db")
    await books.open()
    yield books
    await books.file.close()


async def test_a_message_is_taken_once_and_a_second_copy_of_it_is_dropped(books: Books) -> None:
    plan = await books.publish("a")
    (lease,) = (await books.take(books.parcel(plan))).leases
    again = await books.take(books.parcel(plan))
    assert (again.leases, len(again.dropped)) == ([], 1), "a publish repeated because its confirm was lost"
    assert await books.acked(lease) == []
    after = await books.take(books.parcel(plan, redelivered=True))
    assert (after.leases, len(after.dropped)) == ([], 1), "its ack was lost, but it is done"
    assert await books.counts() == (0, 0, 0, 0)


async def test_a_redelivery_is_a_crash_only_when_somebody_held_the_message(books: Books) -> None:
    plan = await books.publish("held", "ahead")
    await books.take(books.parcel(plan, 0))
    taken = await books.take(books.parcel(plan, 0, redelivered=True), books.parcel(plan, 1, redelivered=True))
    assert [(one.attempt, one.crashes) for one in taken.leases] == [(2, 1), (1, 0)]


async def test_a_lost_connection_is_nobodys_crash(books: Books) -> None:
    plan = await books.publish("a")
    (lease,) = (await books.take(books.parcel(plan))).leases
    await books.file.step(lambda found: ending.lost(found, [lease]))
    (again,) = (await books.take(books.parcel(plan, redelivered=True))).leases
    assert (again.attempt, again.crashes) == (2, 0)


async def test_of_two_copies_the_older_turn_is_dropped(books: Books) -> None:
    plan = await books.publish("a")
    (lease,) = (await books.take(books.parcel(plan))).leases
    back = Return(lease, Event.NACKED, 0)
    await books.file.step(lambda found: ending.returned(found, [back]))
    old = await books.take(books.parcel(plan, turn=0, redelivered=True))
    assert (old.leases, len(old.dropped)) == ([], 1)
    new = await books.take(books.parcel(plan, turn=1))
    assert [one.attempt for one in new.leases] == [2]


async def test_a_lease_of_somebody_else_is_not_ended(books: Books) -> None:
    plan = await books.publish("a")
    (first,) = (await books.take(books.parcel(plan))).leases
    (second,) = (await books.take(books.parcel(plan, redelivered=True))).leases
    assert await books.acked(first) == [first]
    assert await books.counts() == (0, 1, 0, second.parcel.card.size)
    assert await books.acked(second) == []


async def test_a_publish_that_was_never_written_down_as_accepted_counts_when_it_comes(books: Books) -> None:
    lost = await books.reserve("a")
    assert await books.counts() == (0, 0, 0, 0)
    (lease,) = (await books.take(books.parcel(lost))).leases
    assert lease.attempt == 1
    repeated = await books.publish("a")
    assert repeated.fresh == (), "its id is taken"


async def test_a_repeated_publish_is_dropped_whichever_copy_comes_first(books: Books) -> None:
    lost = await books.reserve("a")
    accepted = await books.publish("a")
    assert len(accepted.fresh) == 1
    first = await books.take(books.parcel(lost))
    assert (first.leases, len(first.dropped)) == ([], 1)
    assert len((await books.take(books.parcel(accepted))).leases) == 1


async def test_what_a_power_cut_took_from_the_ledger_is_delivered_all_the_same(books: Books, tmp_path: Path) -> None:
    plan = await books.publish("kept")
    beyond = msgspec.structs.replace(plan.fresh[0], envelope=books.message("forgotten"), seq=7)
    reused = msgspec.structs.replace(plan.fresh[0], envelope=books.message("namesake"))
    forgotten = [books.parcel(msgspec.structs.replace(plan, fresh=(one,))) for one in (beyond, reused)]
    taken = await books.take(books.parcel(plan), *forgotten)
    assert [lease.parcel.envelope.id for lease in taken.leases] == ["kept", "forgotten", "namesake"]
    assert await books.acked(*taken.leases) == []
    assert await books.counts() == (0, 0, 0, 0)


async def test_a_dead_letter_is_taken_over_once(books: Books) -> None:
    plan = await books.publish("a")
    (lease,) = (await books.take(books.parcel(plan))).leases
    found = [Found(books.parcel(plan, turn=1), G, FailureKind.PERMANENT)]
    assert await books.bury(lease, found) == 0, "the death was written down before"
    assert await books.file.step(lambda one: letters.take_over(one, Q, found, body=False)) == 0
    listed = await books.file.step(lambda one: letters.page(one, Q, None, None, 10))
    assert [letter.envelope.id for letter in listed] == ["a"]
    assert await books.counts() == (0, 0, 1, 0)


async def test_a_death_that_only_the_server_knows_of_is_written_down(books: Books) -> None:
    plan = await books.publish("a")
    found = [Found(books.parcel(plan), G, FailureKind.EXPIRED)]
    assert await books.file.step(lambda one: letters.take_over(one, Q, found, body=False)) == 1
    assert await books.counts() == (0, 0, 1, 0)
    (shard,) = (await books.file.step(pages.shards)).values()
    assert shard.last_seq == 4


async def test_a_cancelled_message_is_dropped_when_it_comes(books: Books) -> None:
    plan = await books.publish("a")
    assert await books.file.step(lambda one: declaring.cancel(one, Q, "a"))
    taken = await books.take(books.parcel(plan))
    assert (taken.leases, len(taken.dropped)) == ([], 1)
