"""Consumers as applications configure them: filters, schemas, queues, batches, and what they say of themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from godwit.brokers.contract import Ack
from godwit.config import load
from godwit.core.failures.failure import FailureKind
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.names import QueueName
from godwit.core.settings import Settings
from godwit.testing import InMemoryManager, in_memory, run_until_empty
from tests.logs import capture_logs
from tests.waiting import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"


def configured(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "godwit.toml"
    file.write_text(text)
    return load(file, environment={}, arguments={"broker_url": "memory://"})


async def test_what_a_groups_filter_does_not_want_is_done_without_being_handled(tmp_path: Path) -> None:
    text = """
    [[queues]]
    name = "orders"
    [[queues.consumer_groups]]
    name = "large"
    filter = 'payload.amount > 100'
    [[queues.consumer_groups]]
    name = "all"
    """
    mq = in_memory(configured(tmp_path, text))
    seen: dict[str, list[int]] = {"large": [], "all": []}
    for group, amounts in seen.items():

        async def handler(message: Message, amounts: list[int] = amounts) -> None:
            amounts.append(message.payload["amount"])

        mq.consumer("orders", group=group)(handler)
    async with mq:
        await mq.enqueue_many([Message(queue="orders", payload={"amount": amount}) for amount in (50, 150, 100, 101)])
        ran = await run_until_empty(mq)
    assert seen == {"large": [150, 101], "all": [50, 150, 100, 101]}
    assert (ran.dead, sum(group.depth for queue in ran.stats for group in queue.groups)) == (0, 0)


async def test_what_does_not_fit_its_types_schema_is_a_permanent_dead_letter_also_when_another_program_sent_it() -> (
    None
):
    class Order(msgspec.Struct):
        amount: int

    mq = in_memory()
    mq.schemas.register("order", Order)
    handled: list[object] = []

    @mq.consumer("orders")
    async def handler(message: Message) -> None:
        handled.append(message.payload)

    async with mq:
        good, bad = ({"amount": 7}, {"amount": "seven"})
        await mq.broker.publish([seal(Message(queue="orders", type="order", payload=one)) for one in (good, bad)])
        await run_until_empty(mq)
        (letter,) = await mq.broker.dead_letters.page(QueueName("orders"))
    assert handled == [good]
    assert letter.kind is FailureKind.PERMANENT
    assert letter.errors[0].type == "validation"


@pytest.mark.parametrize("order", ["strict", "weighted"])
async def test_one_group_reads_several_queues_by_their_priority(tmp_path: Path, order: str) -> None:
    text = f'[consumer]\nqueue_order = "{order}"\nmax_concurrency = 1\n' + "".join(
        f'[[queues]]\nname = "{name}"\npriority = {priority}\nconsumer_groups = ["g"]\n'
        for name, priority in (("low", 9), ("high", 89))
    )
    mq = in_memory(configured(tmp_path, text))
    seen: list[str] = []

    @mq.consumer("low", "high", group="g")
    async def handler(message: Message) -> None:
        seen.append(message.queue or "")

    async with mq:
        await mq.enqueue_many([Message(queue=name) for name in ("low", "high") for _ in range(60)])
        await run_until_empty(mq)
    assert len(seen) == 120
    first = seen[:60].count("low")
    assert first == 0 if order == "strict" else 0 < first < 30, "higher first; weighted, the lower is not starved"


async def test_a_batch_is_as_large_as_the_configuration_says() -> None:
    settings = load(EXAMPLES / "xnovu-high-volume.toml", environment={}, arguments={"broker_url": "memory://"})
    mq = in_memory(settings)
    sizes: list[int] = []

    @mq.consumer("notifications", group="processors", batch=True)
    async def handler(messages: list[Message]) -> None:
        sizes.append(len(messages))

    async with mq:
        await mq.enqueue_many([Message(queue="notifications") for _ in range(40)])
        await run_until_empty(mq)
    assert sizes == [20, 20]


async def test_an_instance_says_what_it_did_and_when_it_was_last_alive() -> None:
    mq = in_memory()

    @mq.consumer("orders", concurrency=1)
    async def handler(message: Message) -> None:
        await asyncio.sleep(0.02)
        if message.payload == "bad":
            raise ValueError("no")

    async with mq:
        await mq.enqueue_many([Message(queue="orders", payload=word) for word in ("good", "good", "bad")])
        worker = mq.worker(name="collector-7")
        running = asyncio.create_task(worker.run())
        await eventually(lambda: worker.counts.processed >= 3)
        worker.stop()
        await running
        (one,) = await mq.instances("orders")
    assert (one.id, one.queue, one.group) == ("collector-7", "orders", "default")
    assert (one.processed_count, one.error_count) == (3, 1)
    assert one.average_processing_time_ms >= 20
    assert one.last_heartbeat_ms == mq.clock.now_ms()


async def test_the_log_has_every_failure_with_its_context_and_the_end_of_a_worker_with_its_numbers() -> None:
    mq = in_memory()

    @mq.consumer("orders")
    async def handler(_: Message) -> None:
        raise ConnectionRefusedError("ECONNREFUSED")

    async with mq:
        name = await mq.enqueue(Message(queue="orders", payload={"secret": "hush"}))
        with capture_logs() as lines:
            await run_until_empty(mq)
    failed = [line for line in lines if line["event"] in {"handler failed", "message given up"}]
    assert [(line["message_id"], line["attempt"], line["error_type"], line["log_level"]) for line in failed] == [
        (name, 1, "network", "warning"), (name, 2, "network", "warning"), (name, 3, "network", "error"),
    ]  # fmt: skip
    assert [line.get("again_in") for line in failed] == [5.0, 10.0, None]
    assert all("ECONNREFUSED" in line["traceback"] and "in handler" in line["traceback"] for line in failed)
    (ended,) = (line for line in lines if line["event"] == "worker stopped")
    assert (ended["processed"], ended["handed_back"]) == (3, 0)
    assert "hush" not in str(lines), "no payload in a log"


async def test_what_is_pulled_by_hand_is_counted_like_a_workers_deliveries() -> None:
    mq: InMemoryManager = in_memory()
    async with mq:
        await mq.broker.declare(mq.settings.queue(QueueName("orders")).spec)
        await mq.enqueue_many([Message(queue="orders") for _ in range(3)])
        done, again, dead = await mq.dequeue("orders")
        await mq.acknowledge_message(done)
        await mq.reject_message(again, "later")
        await mq.reject_message(dead, "never", requeue=False)
        page = mq.metrics.render()
        assert await mq.broker.settle([Ack(done.ack_id)]) == [done.ack_id]
    for line in (
        'queue_message_ack_total{queue="orders",group="default"} 1',
        'queue_message_nack_total{queue="orders",group="default"} 1',
        'godwit_dead_letters_total{queue="orders",group="default",kind="permanent"} 1',
        'queue_wait_time_seconds_count{queue="orders",group="default"} 3',
    ):
        assert line in page
