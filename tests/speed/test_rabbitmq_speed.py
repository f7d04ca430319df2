"""RabbitMQ's speed as ratios and rates; the comparison with Celery and Dramatiq is `./dev bench rabbitmq`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from benchmarks.rabbitmq import MANY, Q, consume, latency, publish, publish_bare, slow_handlers
from godwit.brokers.rabbitmq import RabbitMQBroker
from godwit.core.queues import QueueSpec
from tests.servers.rabbitmq import RabbitNode, single
from tests.steal_time import calm

LATENCY_MS: Final = 100
ROUNDS: Final = 3

pytestmark = pytest.mark.serial


@pytest.fixture(scope="module")
def disk() -> Iterator[RabbitNode]:
    """Give a node that waits for a real disk."""
    with single(on_disk=True) as node:
        yield node


async def test_publishing_is_at_least_half_as_fast_as_a_bare_client_and_latency_is_low(
    disk: RabbitNode, tmp_path: Path
) -> None:
    async with RabbitMQBroker(f"{disk.url}?ledger={tmp_path / 'l.db'}") as broker:
        await broker.declare(QueueSpec(name=Q))
        ratios = []
        for repeat in range(ROUNDS):
            bare = await publish_bare(disk.url)
            ratios.append(await publish(broker, f"r{repeat}") / bare)
            await consume(broker, MANY)
        assert statistics.median(ratios) >= 0.5, ratios
        assert await slow_handlers(broker, 40, calm) >= 570
        late = [await latency(broker, 2) for _ in range(ROUNDS)]
        assert min(late) < LATENCY_MS, late
