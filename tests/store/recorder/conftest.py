from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from godwit.store.contract import Store
from tests.servers.postgres import fresh_database, shared
from tests.servers.session_servers import lasting
from tests.store.conformance.harness import BACKENDS, StoreHarness, harness_of


@pytest.fixture(params=BACKENDS)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreHarness]:
    if request.param == "postgres":
        yield StoreHarness("postgres", emptied())
        return
    with harness_of(str(request.param), tmp_path) as made:
        yield made


def emptied() -> str:
    """Return one database of this process with empty state tables: quicker than a new one for each test."""
    server = shared()
    url: str = lasting("recorder database", fresh_database(server))
    tables = "queue_messages, queue_deliveries, queue_messages_history, queue_deliveries_history, dead_letters"
    others = "message_queues, consumer_groups, consumer_instances, recorder_position"
    server.ask(f"TRUNCATE {tables}, {others}", database=url.rpartition("/")[2])
    return url


@pytest.fixture
async def store(harness: StoreHarness) -> AsyncIterator[Store]:
    async with harness.open() as opened:
        yield opened
