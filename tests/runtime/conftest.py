from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from godwit.brokers.urls import connect
from godwit.core.queues import QueueSpec
from tests.runtime.worker_processes import ORDERS, SampleWorkers


@pytest.fixture
async def sample(tmp_path: Path) -> AsyncIterator[SampleWorkers]:
    """Give a shop whose queue is declared."""
    url = f"sqlite:///{tmp_path}/shop.db"
    async with connect(url) as broker:
        await broker.declare(QueueSpec(name=ORDERS))
        yield SampleWorkers(tmp_path, broker, url)
