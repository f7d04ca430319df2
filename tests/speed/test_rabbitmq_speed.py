"""RabbitMQ's speed as ratios and rates; the comparison with Celery and Dramatiq is `./dev bench rabbitmq`."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from benchmarks.rabbitmq import MANY as COUNT
from benchmarks.rabbitmq import Q, consume, latency, publish, publish_bare, slow_handlers
from godwit.brokers.rabbitmq import RabbitMQBroker
from godwit.core.queues import QueueSpec
from tests.servers.rabbitmq import the_node

pytestmark = [pytest.mark.serial, pytest.mark.timeout(120)]


async def test_publishing_is_at_least_half_as_fast_as_a_bare_client_and_latency_is_low(tmp_path: Path) -> None:
    node = the_node()
    async with RabbitMQBroker(f"{node.url}?ledger={tmp_path / 'l.db'}&namespace={tmp_path.name}.") as broker:
        await broker.declare(QueueSpec(name=Q))
        ratios = []
        for repeat in range(3):
            bare = await publish_bare(node.url)
            ratios.append(await publish(broker, f"r{repeat}") / bare)
            await consume(broker, COUNT)
        assert statistics.median(ratios) >= 0.5, ratios
        late = [await latency(broker, 2) for _ in range(3)]
        assert min(late) < 100, late
        assert await slow_handlers(broker, 40) >= 570
        await broker.remove(Q)
