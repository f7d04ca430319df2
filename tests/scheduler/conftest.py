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
    """Return one database of this process with empty schedules: quicker than a new one for each test."""
    server = shared()
    url: str = lasting("scheduler database", fresh_database(server))
    tables = "schedules, campaigns, schedule_firings, schedule_firings_history"
    server.ask(f"TRUNCATE {tables}", database=url.rpartition("/")[2])
    return url


@pytest.fixture
async def store(harness: StoreHarness) -> AsyncIterator[Store]:
    async with harness.open() as opened:
        yield opened
