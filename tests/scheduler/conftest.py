from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from godwit.store.contract import Store
from tests.store.conformance.harness import BACKENDS, StoreHarness, harness_of


@pytest.fixture(params=BACKENDS)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreHarness]:
    with harness_of(str(request.param), tmp_path) as made:
        yield made


@pytest.fixture
async def store(harness: StoreHarness) -> AsyncIterator[Store]:
    async with harness.open() as opened:
        yield opened
