from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from godwit.core.errors import SchemaOutdated, StoreClosed, UnknownScheme
from godwit.store.contract import Store
from godwit.store.urls import connect
from tests.store.conformance.harness import StoreHarness, harness_of


async def test_a_new_store_lacks_everything_until_it_is_upgraded(backend: str, tmp_path: Path) -> None:
    with harness_of(backend, tmp_path, migrated=False) as harness:
        async with harness.open() as store:
            before = await store.migrations.status()
            assert before.applied == ()
            assert len(before.pending) >= 8
            assert await store.migrations.upgrade() == before.pending
            after = await store.migrations.status()
            assert after.current
            assert after.applied == before.pending
            assert await store.migrations.upgrade() == ()


async def test_ten_upgraders_at_once_apply_each_migration_once(backend: str, tmp_path: Path) -> None:
    with harness_of(backend, tmp_path, migrated=False) as harness:
        stores = [harness.open() for _ in range(10)]
        try:
            await asyncio.gather(*(store.migrations.upgrade() for store in stores))
            assert (await stores[0].migrations.status()).current
        finally:
            for store in stores:
                await store.close()


async def test_a_postgres_store_without_its_schema_says_what_to_run(tmp_path: Path) -> None:
    with harness_of("postgres", tmp_path, migrated=False) as harness:
        async with harness.open() as store:
            with pytest.raises(SchemaOutdated, match="godwit db upgrade"):
                await store.ping()
            await store.migrations.upgrade()
            await store.ping()


async def test_a_closed_store_says_so(harness: StoreHarness) -> None:
    store = harness.open()
    await store.ping()
    await store.close()
    with pytest.raises(StoreClosed):
        await store.ping()


async def test_a_store_can_be_reached(store: Store) -> None:
    await store.ping()


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(UnknownScheme, match="postgresql"):
        connect("mysql://somewhere/db")
