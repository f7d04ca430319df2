from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from godwit.brokers.contract import Broker
from godwit.brokers.memory import MemoryBroker
from godwit.brokers.urls import connect
from godwit.core.clock import ManualClock
from godwit.core.queues import QueueSpec
from tests.admin.builders import Q


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def memory(clock: ManualClock) -> AsyncIterator[MemoryBroker]:
    async with MemoryBroker(clock=clock) as made:
        await made.declare(QueueSpec(name=Q))
        yield made


@pytest.fixture(params=["memory", "sqlite"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Broker]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'godwit.db'}"
    async with connect(url) as made:
        await made.declare(QueueSpec(name=Q))
        yield made
