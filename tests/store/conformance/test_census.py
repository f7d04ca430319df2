"""What the journal does not tell: pauses and heartbeats in the state tables."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from godwit.admin.control import QueueControl
from godwit.brokers.contract import Ack
from godwit.brokers.memory import MemoryBroker
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.queues import QueueSpec
from godwit.runtime.recorder.census import take_census
from godwit.runtime.recorder.recorder import Recorder
from godwit.runtime.worker.consumer import Consumer
from godwit.runtime.worker.worker import Worker
from godwit.store.contract import Store
from tests.store.conformance.harness import StoreHarness
from tests.store.tables import rows
from tests.waiting import eventually


async def statuses(harness: StoreHarness, table: str) -> list[str]:
    return [row["status"] for row in await rows(harness.url, f"SELECT status FROM {table}")]


async def test_a_paused_queue_and_its_groups_are_shown_as_paused(harness: StoreHarness, store: Store) -> None:
    async with MemoryBroker() as broker:
        await broker.declare(QueueSpec(name="orders"))
        await Recorder(broker.journal, store.messages).catch_up()
        control = QueueControl(broker, by="test")
        assert await statuses(harness, "message_queues") == ["active"]
        await control.pause("orders")
        await take_census(broker, store.messages)
        assert await statuses(harness, "message_queues") == ["paused"]
        assert await statuses(harness, "consumer_groups") == ["paused"]
        await control.resume("orders")
        await control.drain("orders")
        await take_census(broker, store.messages)
        assert await statuses(harness, "message_queues") == ["draining"]
        assert await statuses(harness, "consumer_groups") == ["active"]


async def test_members_are_counted_and_their_state_is_shown(harness: StoreHarness, store: Store) -> None:
    async with MemoryBroker() as broker:
        await broker.declare(QueueSpec(name="orders"))
        recorder = Recorder(broker.journal, store.messages)

        async def handle(_message: Message) -> None: ...

        worker = Worker(broker, [Consumer(handler=handle, queues=("orders",))], name="w1")
        running = asyncio.create_task(worker.run())
        await broker.publish([seal(Message(queue="orders")) for _ in range(3)])
        await eventually(lambda: worker.counts.processed == 3)
        await recorder.catch_up()
        await take_census(broker, store.messages)
        (member,) = await rows(harness.url, "SELECT * FROM consumer_instances")
        assert (member["instance_id"], member["status"], member["processed_count"]) == ("w1", "active", 3)
        worker.stop()
        await running
        await take_census(broker, store.messages)
        (member,) = await rows(harness.url, "SELECT * FROM consumer_instances")
        assert (member["status"], member["processed_count"], member["error_count"]) == ("inactive", 3, 0)


async def test_the_average_is_that_of_everything_handled(harness: StoreHarness, store: Store) -> None:
    async with MemoryBroker() as broker:
        await broker.declare(QueueSpec(name="orders"))
        recorder = Recorder(broker.journal, store.messages)
        await broker.publish([seal(Message(queue="orders")) for _ in range(3)])
        for run_ms in (10, 20, 60):
            (delivery,) = await broker.pull("orders", "default", worker="w1", limit=1, lease=timedelta(seconds=9))
            await broker.settle([Ack(delivery.ack_id, run_ms=run_ms)])
            await recorder.catch_up()
        (member,) = await rows(harness.url, "SELECT * FROM consumer_instances")
        assert (member["processed_count"], member["average_processing_time_ms"]) == (3, 30)
