"""RabbitMQ: Godwit beside a bare client with the same window, and beside Celery and Dramatiq on the same node."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import aiormq

from benchmarks.results import Clock, Report, Result, ratios, report
from godwit.brokers.contract import Ack
from godwit.brokers.rabbitmq import RabbitMQBroker
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import QueueSpec
from godwit.runtime.worker.consumer import Consumer
from godwit.runtime.worker.worker import Worker, WorkerSettings
from tests.servers.rabbitmq import RabbitNode, single

Q: Final = QueueName("bench")
G: Final = GroupName("default")
LEASE: Final = timedelta(seconds=60)
WINDOW: Final = 200
MANY: Final = 4_000
FEW: Final = 400
RATE: Final = 200
REPEATS: Final = 3
PEERS: Final = Path(__file__).resolve().parent.parent / ".venv-peers" / "bin" / "python"
BODY: Final = "x" * 300


def messages(count: int, tag: str) -> list[Envelope]:
    """Return so many messages of 300 characters."""
    return [seal(Message(id=f"{tag}-{number}", queue=Q, payload=BODY)) for number in range(count)]


async def publish(broker: RabbitMQBroker, tag: str) -> float:
    """Return messages per second, published in calls of one window."""
    batch = messages(MANY, tag)
    began = time.perf_counter()
    for start in range(0, MANY, WINDOW):
        await broker.publish(batch[start : start + WINDOW])
    return MANY / (time.perf_counter() - began)


async def publish_bare(url: str) -> float:
    """Return what aiormq, the client below aio-pika, does with the same window on a queue of the same kind."""
    connection = await aiormq.connect(url)
    channel = await connection.channel(publisher_confirms=True)
    arguments: dict[str, Any] = {"x-queue-type": "quorum", "x-max-length": 100_000, "x-overflow": "reject-publish"}
    await channel.queue_declare("bare", durable=True, arguments=arguments)
    body = messages(1, "bare")[0].body
    properties = aiormq.spec.Basic.Properties(delivery_mode=2)
    began = time.perf_counter()
    for _ in range(0, MANY, WINDOW):
        window = [
            channel.basic_publish(body, routing_key="bare", properties=properties, mandatory=True)
            for _ in range(WINDOW)
        ]
        await asyncio.gather(*window)
    rate = MANY / (time.perf_counter() - began)
    await channel.queue_delete("bare")
    await connection.close()
    return rate


async def consume(broker: RabbitMQBroker, count: int) -> float:
    """Return messages per second, pulled and acked while somebody listens, as a worker does."""
    listener = broker.listen([(Q, G)])
    done = 0
    began = time.perf_counter()
    while done < count:
        listener.clear()
        deliveries = await broker.pull(Q, G, worker="bench", limit=WINDOW, lease=LEASE)
        if deliveries:
            await broker.settle([Ack(delivery.ack_id) for delivery in deliveries])
            done += len(deliveries)
        else:
            await listener.wait(timedelta(seconds=1))
    rate = count / (time.perf_counter() - began)
    listener.close()
    return rate


async def _steadily(count: int, send: Callable[[int], Coroutine[Any, Any, Any]]) -> None:
    """Send so many messages at the steady rate, whatever becomes of them meanwhile."""
    sending: set[asyncio.Task[Any]] = set()
    began = time.perf_counter()
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
        sending.add(asyncio.create_task(send(number)))
    await asyncio.gather(*sending)


async def latency(broker: RabbitMQBroker, seconds: float = 4) -> float:
    """Return the p99 in milliseconds from publish to delivery at a steady 200 messages a second."""
    batch = messages(int(RATE * seconds), f"late{time.perf_counter()}")
    sent: dict[str, float] = {}
    took: list[float] = []

    async def send(number: int) -> None:
        sent[batch[number].id] = time.perf_counter()
        await broker.publish([batch[number]])

    sender = asyncio.create_task(_steadily(len(batch), send))
    while len(took) < len(batch):
        deliveries = await broker.pull(Q, G, worker="bench", limit=50, lease=LEASE, wait=timedelta(seconds=1))
        now = time.perf_counter()
        took += [(now - sent[one.message_id]) * 1000 for one in deliveries]
        await broker.settle([Ack(one.ack_id) for one in deliveries])
    await sender
    return statistics.quantiles(took, n=100)[98]


async def latency_bare(url: str, seconds: float = 4) -> float:
    """Return the same of aiormq on a queue of the same kind: what the server and the machine give just now."""
    count = int(RATE * seconds)
    connection = await aiormq.connect(url)
    publishing, consuming = await connection.channel(publisher_confirms=True), await connection.channel()
    arguments: dict[str, Any] = {"x-queue-type": "quorum"}
    await publishing.queue_declare("bare", durable=True, arguments=arguments)
    properties = aiormq.spec.Basic.Properties(delivery_mode=2)
    sent: list[float] = [0.0] * count
    took: list[float] = []
    done = asyncio.Event()

    async def receive(message: Any) -> None:
        took.append((time.perf_counter() - sent[int(message.body[:9])]) * 1000)
        await consuming.basic_ack(message.delivery.delivery_tag)
        if len(took) == count:
            done.set()

    async def send(number: int) -> None:
        sent[number] = time.perf_counter()
        body = f"{number:09}{BODY}".encode()
        await publishing.basic_publish(body, routing_key="bare", properties=properties, mandatory=True)

    await consuming.basic_qos(prefetch_count=50)
    consumer = await consuming.basic_consume("bare", receive)
    await _steadily(count, send)
    await done.wait()
    await consuming.basic_cancel(str(consumer.consumer_tag))
    await publishing.queue_delete("bare")
    await connection.close()
    return statistics.quantiles(took, n=100)[98]


async def slow_handlers(broker: RabbitMQBroker, count: int = 50, clock: Clock = time.perf_counter) -> float:
    """Return messages per minute with a handler of 500 ms at prefetch 5."""
    await broker.publish(messages(count, f"slow{time.time()}"))
    done = 0
    finished = asyncio.Event()

    async def handle(_message: Message) -> None:
        nonlocal done
        await asyncio.sleep(0.5)
        done += 1
        if done == count:
            finished.set()

    consumer = Consumer(handler=handle, queues=(Q,), concurrency=5)
    worker = Worker(broker, [consumer], settings=WorkerSettings(grace=timedelta(seconds=2)))
    running = asyncio.create_task(worker.run())
    began = clock()
    await finished.wait()
    rate = count / (clock() - began) * 60
    worker.stop()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return rate


def peer(order: str, url: str, count: int) -> float:
    """Return messages per second of another queue in its own environment."""
    program = Path(__file__).with_name("rabbitmq_peers.py")
    done = subprocess.run(
        [PEERS, program, order, url, str(count)], capture_output=True, text=True, check=True, timeout=120
    )
    return count / float(done.stdout.split()[-1])


Found = dict[str, list[float]]


async def measure(node: RabbitNode, place: Path) -> Found:
    """Measure all sides in turn."""
    found: Found = {}

    def note(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    async with RabbitMQBroker(f"{node.url}?ledger={place / 'ledger.db'}") as broker:
        await broker.declare(QueueSpec(name=Q))
        for repeat in range(REPEATS):
            note("bare", await publish_bare(node.url))
            note("publish", await publish(broker, f"r{repeat}"))
            note("consume", await consume(broker, MANY))
            if PEERS.exists():
                for order in ("publish-celery", "publish-dramatiq", "consume-dramatiq"):
                    count = FEW if order.startswith("publish") else FEW * 3
                    note(order, await asyncio.to_thread(peer, order, node.url, count))
            note("latency bare", await latency_bare(node.url))
            note("latency", await latency(broker))
        note("slow", await slow_handlers(broker))
        await broker.remove(Q)
    return found


def run() -> Report:
    """Measure on a private node."""
    with single(on_disk=True) as node, tempfile.TemporaryDirectory() as place:
        found = asyncio.run(measure(node, Path(place)))
    results = [
        Result(name="publish with confirms", unit="messages/s", repeats=found["publish"]),
        Result(name="bare aiormq, same window", unit="messages/s", repeats=found["bare"]),
        Result(name="publish / bare client", unit="ratio", repeats=ratios(found["publish"], found["bare"]), floor=0.5),
        Result(name="consume and ack", unit="messages/s", repeats=found["consume"]),
        Result(name="latency p99 at 200/s", unit="ms", repeats=found["latency"], floor=100, lower_is_better=True),
        Result(name="bare aiormq, latency p99 at 200/s", unit="ms", repeats=found["latency bare"]),
        Result(name="500 ms handler, prefetch 5", unit="messages/min", repeats=found["slow"], floor=570),
    ]
    remarks = []
    if "publish-celery" in found:
        for name, order in (("Celery", "publish-celery"), ("Dramatiq", "publish-dramatiq")):
            results.append(Result(name=f"{name}, publish with confirms", unit="messages/s", repeats=found[order]))
            ratio = ratios(found["publish"], found[order])
            results.append(Result(name=f"publish / {name}", unit="ratio", repeats=ratio, floor=3))
        consumed = found["consume-dramatiq"]
        results.append(Result(name="Dramatiq, consume and ack", unit="messages/s", repeats=consumed))
        ratio = ratios(found["consume"], consumed)
        results.append(Result(name="consume / Dramatiq", unit="ratio", repeats=ratio, floor=2))
    else:
        remarks.append("Celery and Dramatiq are left out: .venv-peers is missing (./dev bench peers makes it).")
    settings = {"window": WINDOW, "messages": MANY, "node": "one private RabbitMQ 3.10 node, quorum queues"}
    return report("rabbitmq", settings, results, remarks)
