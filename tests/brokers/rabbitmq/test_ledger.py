"""The ledger's judgement about copies that come from RabbitMQ, without a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from godwit.brokers.contract import Ack
from godwit.brokers.rabbitmq.layout.message import InboundMessage, header_of
from godwit.brokers.rabbitmq.ledger import dead_letters, declare, publish, queries, settle
from godwit.brokers.rabbitmq.ledger.dead_letters import InboundLetter
from godwit.brokers.rabbitmq.ledger.file import LedgerFile
from godwit.brokers.rabbitmq.ledger.publish import PublishPlan
from godwit.brokers.rabbitmq.ledger.pull import Lease, Taken, Taker
from godwit.brokers.rabbitmq.ledger.settle import Burial, Done, Return
from godwit.core.clock import ManualClock
from godwit.core.failures.failure import FailureKind
from godwit.core.journal.vocabulary import Event
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message
from godwit.core.names import AckId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from tests.conformance.harness import G, Q

tokens = (f"t{number}" for number in count(1))


class OpenLedger:
    """A ledger in a file of its own, and the steps of one message's life."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.file = LedgerFile(path, clock=self.clock)

    async def open(self) -> None:
        await self.file.open()
        spec = QueueSpec(name=Q)
        await self.file.step(lambda ledger: declare.declare(ledger, spec, [GroupSpec(name=G)]))

    async def reserve(self, *ids: str) -> PublishPlan:
        chunk = [self.message(name) for name in ids]
        return await self.file.step(lambda ledger: publish.reserve(ledger, chunk, moved=False))

    async def publish(self, *ids: str) -> PublishPlan:
        plan = await self.reserve(*ids)
        await self.file.step(lambda ledger: publish.accepted(ledger, plan, body=False))
        return plan

    @staticmethod
    def message(name: str) -> Envelope:
        return seal(Message(id=name, queue=Q))

    @staticmethod
    def inbound(plan: PublishPlan, index: int = 0, *, turn: int = 0, redelivered: bool = False) -> InboundMessage:
        one = plan.fresh[index]
        header = header_of(one.envelope, epoch=plan.epoch, seq=one.seq, ready_at_ms=0, expiry_ms=0, group=None)
        return InboundMessage(
            1, redelivered, int(redelivered), one.envelope, msgspec.structs.replace(header, turn=turn)
        )

    async def take(self, *arrived: InboundMessage) -> Taken:
        def step(ledger: Any) -> Taken:
            taker = Taker(ledger, Q, G, worker="w", lease_ms=1_000, limit=10, max_bytes=None, tokens=tokens, body=False)
            return taker.take(arrived)

        return await self.file.step(step)

    async def counts(self) -> tuple[int, int, int, int]:
        ((group,),) = [stats.groups for stats in await self.file.step(queries.stats)]
        return group.ready, group.leased, group.dead, group.bytes

    async def acked(self, *leases: Lease) -> list[Lease]:
        return await self.file.step(
            lambda ledger: settle.acked(ledger, [Done(one, Ack(AckId(""), 1)) for one in leases])
        )

    async def bury(self, lease: Lease, found: Sequence[InboundLetter]) -> int:
        await self.file.step(lambda ledger: settle.buried(ledger, [Burial(lease, FailureKind.PERMANENT)]))
        return await self.file.step(lambda ledger: dead_letters.take_over(ledger, Q, found, body=False), durable=True)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[OpenLedger]:
    ledger = OpenLedger(tmp_path / "ledger.db")
    await ledger.open()
    yield ledger
    await ledger.file.close()


async def test_a_message_is_taken_once_and_a_second_copy_of_it_is_dropped(ledger: OpenLedger) -> None:
    plan = await ledger.publish("a")
    (lease,) = (await ledger.take(ledger.inbound(plan))).leases
    again = await ledger.take(ledger.inbound(plan))
    assert (again.leases, len(again.dropped)) == ([], 1), "a publish repeated because its confirm was lost"
    assert await ledger.acked(lease) == []
    after = await ledger.take(ledger.inbound(plan, redelivered=True))
    assert (after.leases, len(after.dropped)) == ([], 1), "its ack was lost, but it is done"
    assert await ledger.counts() == (0, 0, 0, 0)


async def test_a_redelivery_is_a_crash_only_when_somebody_held_the_message(ledger: OpenLedger) -> None:
    plan = await ledger.publish("held", "ahead")
    await ledger.take(ledger.inbound(plan, 0))
    taken = await ledger.take(ledger.inbound(plan, 0, redelivered=True), ledger.inbound(plan, 1, redelivered=True))
    assert [(one.attempt, one.crashes) for one in taken.leases] == [(2, 1), (1, 0)]


async def test_a_lost_connection_is_nobodys_crash(ledger: OpenLedger) -> None:
    plan = await ledger.publish("a")
    (lease,) = (await ledger.take(ledger.inbound(plan))).leases
    await ledger.file.step(lambda found: settle.lost(found, [lease]))
    (again,) = (await ledger.take(ledger.inbound(plan, redelivered=True))).leases
    assert (again.attempt, again.crashes) == (2, 0)


async def test_of_two_copies_the_older_turn_is_dropped(ledger: OpenLedger) -> None:
    plan = await ledger.publish("a")
    (lease,) = (await ledger.take(ledger.inbound(plan))).leases
    back = Return(lease, Event.NACKED, 0)
    await ledger.file.step(lambda found: settle.returned(found, [back]))
    old = await ledger.take(ledger.inbound(plan, turn=0, redelivered=True))
    assert (old.leases, len(old.dropped)) == ([], 1)
    new = await ledger.take(ledger.inbound(plan, turn=1))
    assert [one.attempt for one in new.leases] == [2]


async def test_a_lease_of_somebody_else_is_not_ended(ledger: OpenLedger) -> None:
    plan = await ledger.publish("a")
    (first,) = (await ledger.take(ledger.inbound(plan))).leases
    (second,) = (await ledger.take(ledger.inbound(plan, redelivered=True))).leases
    assert await ledger.acked(first) == [first]
    assert await ledger.counts() == (0, 1, 0, second.inbound.header.size)
    assert await ledger.acked(second) == []


async def test_a_publish_that_was_never_written_down_as_accepted_counts_when_it_comes(ledger: OpenLedger) -> None:
    lost = await ledger.reserve("a")
    assert await ledger.counts() == (0, 0, 0, 0)
    (lease,) = (await ledger.take(ledger.inbound(lost))).leases
    assert lease.attempt == 1
    repeated = await ledger.publish("a")
    assert repeated.fresh == (), "its id is taken"


async def test_a_repeated_publish_is_dropped_whichever_copy_comes_first(ledger: OpenLedger) -> None:
    lost = await ledger.reserve("a")
    accepted = await ledger.publish("a")
    assert len(accepted.fresh) == 1
    first = await ledger.take(ledger.inbound(lost))
    assert (first.leases, len(first.dropped)) == ([], 1)
    assert len((await ledger.take(ledger.inbound(accepted))).leases) == 1


async def test_what_a_power_cut_took_from_the_ledger_is_delivered_all_the_same(
    ledger: OpenLedger, tmp_path: Path
) -> None:
    plan = await ledger.publish("kept")
    beyond = msgspec.structs.replace(plan.fresh[0], envelope=ledger.message("forgotten"), seq=7)
    reused = msgspec.structs.replace(plan.fresh[0], envelope=ledger.message("namesake"))
    forgotten = [ledger.inbound(msgspec.structs.replace(plan, fresh=(one,))) for one in (beyond, reused)]
    taken = await ledger.take(ledger.inbound(plan), *forgotten)
    assert [lease.inbound.envelope.id for lease in taken.leases] == ["kept", "forgotten", "namesake"]
    assert await ledger.acked(*taken.leases) == []
    assert await ledger.counts() == (0, 0, 0, 0)


async def test_a_dead_letter_is_taken_over_once(ledger: OpenLedger) -> None:
    plan = await ledger.publish("a")
    (lease,) = (await ledger.take(ledger.inbound(plan))).leases
    found = [InboundLetter(ledger.inbound(plan, turn=1), G, FailureKind.PERMANENT)]
    assert await ledger.bury(lease, found) == 0, "the death was written down before"
    assert await ledger.file.step(lambda one: dead_letters.take_over(one, Q, found, body=False)) == 0
    listed = await ledger.file.step(lambda one: dead_letters.page(one, Q, None, None, 10))
    assert [letter.envelope.id for letter in listed] == ["a"]
    assert await ledger.counts() == (0, 0, 1, 0)


async def test_a_death_that_only_the_server_knows_of_is_written_down(ledger: OpenLedger) -> None:
    plan = await ledger.publish("a")
    found = [InboundLetter(ledger.inbound(plan), G, FailureKind.EXPIRED)]
    assert await ledger.file.step(lambda one: dead_letters.take_over(one, Q, found, body=False)) == 1
    assert await ledger.counts() == (0, 0, 1, 0)
    (shard,) = (await ledger.file.step(queries.shards)).values()
    assert shard.last_seq == 4


async def test_a_cancelled_message_is_dropped_when_it_comes(ledger: OpenLedger) -> None:
    plan = await ledger.publish("a")
    assert await ledger.file.step(lambda one: declare.cancel(one, Q, "a"))
    taken = await ledger.take(ledger.inbound(plan))
    assert (taken.leases, len(taken.dropped)) == ([], 1)


async def test_maintenance_looks_at_a_few_journals_of_removed_queues_and_a_trim_at_all(ledger: OpenLedger) -> None:
    def come_and_go(tx: Any) -> None:
        for number in range(50):
            declare.declare(tx, QueueSpec(name=QueueName(f"q{number}")), [])
            declare.remove(tx, QueueName(f"q{number}"), None)

    async def kept() -> int:
        return sum(bool(ends.bytes) for ends in (await ledger.file.step(queries.shards)).values())

    await ledger.file.step(come_and_go)
    ledger.clock.advance(timedelta(days=365))
    held = await kept()
    assert held >= 50
    await ledger.file.step(lambda tx: queries.trim(tx, removed=queries.REMOVED_SHARDS))
    left = await kept()
    assert held - left in (queries.REMOVED_SHARDS, queries.REMOVED_SHARDS + 1)
    await ledger.file.step(queries.trim)
    assert await kept() == 0
