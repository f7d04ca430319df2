"""Connections that are encrypted, and what a worker with one costs in memory."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from godwit.brokers.contract import Ack
from godwit.brokers.rabbitmq import RabbitMQBroker
from godwit.core.errors import BrokerUnavailable
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.queues import QueueSpec
from tests.conformance.harness import LONG, G, Q
from tests.servers.rabbitmq import RabbitNode

WORKER = """
import asyncio, sys
from godwit import Message, MessageQueueManager

mq = MessageQueueManager.from_url(sys.argv[1])
done = asyncio.Event()
count = 0

@mq.consumer("jobs", concurrency=5)
async def handle(message):
    global count
    count += 1
    if count == 1000:
        done.set()

async def main():
    async with mq:
        worker = mq.worker()
        running = asyncio.create_task(worker.run())
        for _ in range(10):
            await mq.enqueue_many([Message(queue="jobs", payload="x" * 300) for _ in range(100)])
        await done.wait()
        print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS")))
        worker.stop()
        await running
        await mq.broker.remove("jobs")

asyncio.run(main())
"""


async def test_messages_go_over_an_encrypted_connection_to_a_server_whose_certificate_is_trusted(
    node: RabbitNode, tmp_path: Path
) -> None:
    options = f"&ledger={tmp_path / 'l.db'}&namespace={tmp_path.name}."
    async with RabbitMQBroker(node.secure_url + options) as broker:
        await broker.declare(QueueSpec(name=Q))
        sent = seal(Message(queue=Q, payload="x" * 500_000))
        await broker.publish([sent])
        (delivery,) = await broker.pull(Q, G, worker="w", limit=1, lease=LONG)
        assert delivery.envelope == sent
        await broker.settle([Ack(delivery.ack_id)])
        await broker.remove(Q)


async def test_a_certificate_that_is_not_trusted_is_refused(node: RabbitNode, tmp_path: Path) -> None:
    url = node.secure_url.partition("?")[0] + f"?ledger={tmp_path / 'l.db'}"
    with pytest.raises(BrokerUnavailable, match="certificate"):
        async with RabbitMQBroker(url):
            pass


async def test_a_worker_on_rabbitmq_needs_less_than_60_mb(node: RabbitNode, tmp_path: Path) -> None:
    url = f"{node.url}?ledger={tmp_path / 'l.db'}&namespace={tmp_path.name}."
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", WORKER, url], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 60 * 1024
