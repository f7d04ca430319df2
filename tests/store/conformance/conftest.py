from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from godwit.store.contract import Store
from tests.store.conformance.harness import BACKENDS, StoreHarness, harness_of


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def harness(backend: str, tmp_path: Path) -> Iterator[StoreHarness]:
    with harness_of(backend, tmp_path) as made:
        yield made


@pytest.fixture
async def store(harness: StoreHarness) -> AsyncIterator[Store]:
    async with harness.open() as opened:
        yield opened
