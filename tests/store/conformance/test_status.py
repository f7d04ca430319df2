"""Where a message stands: within a second of the transition, open or long finished."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import msgspec
import pytest

from godwit.brokers.contract import Ack, Nack
from godwit.brokers.memory import MemoryBroker
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.clock import ManualClock, milliseconds
from godwit.core.journal.statuses import Status
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message, MessageMetadata, Scheduling
from godwit.core.names import MessageId
from godwit.core.queues import GroupSpec, JournalBody, QueueSpec
from godwit.manager import MessageQueueManager
from godwit.runtime.recorder.recorder import Recorder
from godwit.store.contract import Store
from tests.steal_time import calm
from tests.store.conformance.harness import StoreHarness
from tests.store.tables import rows
from tests.waiting import eventually

LEASE = timedelta(seconds=30)
DAY = timedelta(days=1)


@pytest.fixture
async def broker() -> AsyncIterator[MemoryBroker]:
    async with MemoryBroker() as made:
        spec = QueueSpec(name="orders", journal_body=JournalBody.ON)
        await made.declare(spec, [GroupSpec(name="billing"), GroupSpec(name="audit")])
        yield made


async def test_attempts_last_attempt_and_next_retry_are_told_per_group(store: Store, broker: MemoryBroker) -> None:
    recorder = Recorder(broker.journal, store.messages)
    await broker.publish([seal(Message(id="o1", queue="orders", type="order", payload={"n": 1}))])
    (billing,) = await broker.pull("orders", "billing", worker="w1", limit=1, lease=LEASE)
    (audit,) = await broker.pull("orders", "audit", worker="w2", limit=1, lease=LEASE)
    await broker.settle([Nack(billing.ack_id, timedelta(minutes=5)), Ack(audit.ack_id, run_ms=12, result=b'{"ok":1}')])
    await recorder.catch_up()
    status = await store.messages.status("o1")
    assert status is not None
    assert (status.status, status.attempts, status.retry_count) == (Status.PENDING, 1, 1)
    assert status.last_attempt is not None
    assert status.next_retry is not None
    assert timedelta(minutes=4) < status.next_retry - datetime.now(UTC) <= timedelta(minutes=5)
    groups = {group.group: group for group in status.groups}
    assert (groups["audit"].status, groups["audit"].result, groups["audit"].run_ms) == (Status.COMPLETED, {"ok": 1}, 12)
    assert (groups["billing"].worker, groups["billing"].failures) == ("w1", 1)


async def test_a_message_that_became_due_is_pending_although_nobody_wrote_it_down(
    store: Store, broker: MemoryBroker
) -> None:
    soon = datetime.now(UTC) + timedelta(milliseconds=50)
    later = datetime.now(UTC) + DAY
    messages = [
        Message(id=name, queue="orders", scheduling=Scheduling(deliver_at=due))
        for name, due in (("soon", soon), ("later", later))
    ]
    await broker.publish([seal(message) for message in messages])
    await Recorder(broker.journal, store.messages).catch_up()
    await eventually(lambda: datetime.now(UTC) > soon)
    found = [await store.messages.status(name) for name in ("soon", "later")]
    assert [one.status for one in found if one is not None] == [Status.PENDING, Status.SCHEDULED]


async def test_nobody_knows_what_was_never_published(store: Store) -> None:
    assert await store.messages.status("nobody") is None


async def test_the_same_id_on_both_sides_of_a_day_has_two_ends_and_one_status(
    harness: StoreHarness, store: Store
) -> None:
    clock = ManualClock(milliseconds(timedelta(days=20_000)) - 1_000)  # a second before midnight
    async with MemoryBroker(clock=clock) as broker:
        await broker.declare(QueueSpec(name="orders", journal_body=JournalBody.ON, dedup_window=timedelta(0)))
        recorder = Recorder(broker.journal, store.messages, clock=clock)
        for _ in range(2):
            await broker.publish([seal(Message(id="twice", queue="orders"))])
            (delivery,) = await broker.pull("orders", "default", worker="w", limit=1, lease=LEASE)
            await recorder.catch_up()
            await broker.settle([Ack(delivery.ack_id)])
            await recorder.catch_up()
            clock.advance(timedelta(seconds=2))
    ends = await rows(harness.url, "SELECT finished_at FROM queue_messages_history WHERE message_id = 'twice'")
    days = sorted(row["finished_at"] // milliseconds(DAY) for row in ends)
    assert days == [19_999, 20_000]
    status = await store.messages.status("twice")
    assert status is not None
    assert status.status is Status.COMPLETED


async def test_history_is_dropped_by_whole_days(harness: StoreHarness, store: Store) -> None:
    today = milliseconds(datetime.now(UTC) - datetime(1970, 1, 1, tzinfo=UTC))
    clock = ManualClock(today - 10 * milliseconds(DAY))
    async with MemoryBroker(clock=clock) as broker:
        await broker.declare(QueueSpec(name="orders", journal_body=JournalBody.ON))
        recorder = Recorder(broker.journal, store.messages, clock=clock)
        for number in range(11):
            await broker.publish([seal(Message(id=f"o{number}", queue="orders"))])
            (delivery,) = await broker.pull("orders", "default", worker="w", limit=1, lease=LEASE)
            await broker.settle([Ack(delivery.ack_id)])
            clock.advance(DAY)
        await recorder.catch_up()
    assert await store.messages.retain(timedelta(days=3)) > 0
    left = await rows(harness.url, "SELECT message_id FROM queue_messages_history ORDER BY finished_at")
    assert [row["message_id"] for row in left] == ["o7", "o8", "o9", "o10"]
    assert await store.messages.status("o1") is None
    assert await store.messages.retain(timedelta(days=3)) == 0


async def test_payload_and_metadata_of_a_message_are_stored_as_they_were_sent(
    harness: StoreHarness, store: Store, broker: MemoryBroker
) -> None:
    payload = {"user": 7, "names": ["ä", None, 1.5]}
    metadata = MessageMetadata(correlation_id="c1", source="shop")
    await broker.publish([seal(Message(id="o1", queue="orders", payload=payload, metadata=metadata))])
    await Recorder(broker.journal, store.messages).catch_up()
    (row,) = await rows(harness.url, "SELECT DISTINCT payload, metadata FROM queue_messages")
    stored = [value if isinstance(value, dict) else json.loads(value) for value in (row["payload"], row["metadata"])]
    assert stored == [payload, msgspec.to_builtins(metadata)]


async def test_odd_payloads_are_recorded_and_do_not_stop_the_recorder(store: Store, broker: MemoryBroker) -> None:
    recorder = Recorder(broker.journal, store.messages)
    odd = ["\0", {"nul\0key": [1, "a\0b"]}, "\\u0000", "ä𝄞", {"deep": [[[[[]]]]]}, 10**40, 1e-300, None]
    await broker.publish([seal(Message(id=f"o{n}", queue="orders", payload=one)) for n, one in enumerate(odd)])
    strange = seal(Message(id="strange", queue="orders"))
    for number, body in enumerate([b"not json", b'{"payload": 1e999999}', b'{"payload": "\\ud800"}', b"\xff\xfe"]):
        await broker.publish([msgspec.structs.replace(strange, id=f"s{number}", body=body)])
    await recorder.catch_up()
    for name in [f"o{n}" for n in range(len(odd))] + [f"s{n}" for n in range(4)]:
        status = await store.messages.status(name)
        assert status is not None, name


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in this process", "in another"])
async def test_the_status_is_known_within_a_second_of_the_transition(
    harness: StoreHarness, tmp_path: Path, *, elsewhere: bool
) -> None:
    file = tmp_path / "broker.db"
    mq = MessageQueueManager(SqliteBroker(file), store=harness.open())
    async with mq, MessageQueueManager(SqliteBroker(file)) as other:
        await mq.broker.declare(mq.settings.queue("orders").spec)
        recording = asyncio.create_task(mq.store_services.recorder.run())
        acting, lags = other if elsewhere else mq, []
        for number in range(20):
            message_id = await acting.enqueue(Message(queue="orders", payload=number))
            (delivery,) = await acting.dequeue("orders", limit=1)
            await acting.acknowledge_message(delivery)
            lags.append(await _lag(mq, message_id))
        recording.cancel()
    assert median(lags) < 1, lags


async def _lag(mq: MessageQueueManager, message_id: MessageId) -> float:
    """Return how many seconds pass until the tables know that a message is done; no call asks for it to be recorded."""
    assert mq.store is not None
    began = calm()
    while (found := await mq.store.messages.status(message_id)) is None or found.status is not Status.COMPLETED:
        assert calm() - began < 30
        await asyncio.sleep(0.01)
    return calm() - began


async def test_without_a_recorder_whoever_asks_records(harness: StoreHarness, tmp_path: Path) -> None:
    async with MessageQueueManager(SqliteBroker(str(tmp_path / "broker.db")), store=harness.open()) as mq:
        await mq.broker.declare(mq.settings.queue("orders").spec)
        message_id = await mq.enqueue(Message(queue="orders"))
        status = await mq.status(message_id)
        assert status is not None
        assert status.status is Status.PENDING


async def test_a_message_that_waits_in_the_store_is_scheduled_before_any_broker_knows_it(
    harness: StoreHarness, tmp_path: Path
) -> None:
    async with MessageQueueManager(SqliteBroker(str(tmp_path / "broker.db")), store=harness.open()) as mq:
        await mq.broker.declare(mq.settings.queue("orders").spec)
        due = datetime.now(UTC) + timedelta(days=2)
        message_id = await mq.schedule_message(Message(id="later", queue="orders"), due)
        status = await mq.status(message_id)
        assert status is not None
        assert (status.status, status.queue) == (Status.SCHEDULED, "orders")
        assert status.scheduled_at is not None
        assert abs(status.scheduled_at - due) < timedelta(seconds=1)
        assert await mq.status("nobody") is None
