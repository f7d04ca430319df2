"""A campaign's first plan by COPY: the same bytes as row by row, and other plans wait for it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from godwit.core.names import QueueName
from godwit.core.schedule.schedules import campaign_id
from godwit.store.postgres import PostgresStore
from godwit.store.postgres.schedule import copy_columns
from godwit.store.postgres.schedule.campaigns import packed
from tests.servers.postgres import fresh_database
from tests.store.conformance.adder import Planned, part

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("size", [1, 700])
def test_columns_are_packed_as_rows_are(size: int) -> None:
    keys = [f"ключ-{number}/2030-01-01" + "x" * (number % 5) for number in range(size)]
    rows = [
        Planned(campaign_id("b", key), key, NOW + timedelta(microseconds=7_000_001 * at - 10**13), b"\xff" * (at % 9))
        for at, key in enumerate(keys)
    ]
    made = copy_columns.firings("b", QueueName("q"), part([rows[0], *rows, rows[0]]).slice(1, size))
    loading = [(str(one.id), one.key, QueueName("q"), one.deliver_at, one.message) for one in rows]
    assert b"".join(copy_columns.sent(made)) == packed("b", sorted(loading))


async def test_a_plan_waits_for_the_one_that_has_begun() -> None:
    with fresh_database() as url:
        async with PostgresStore(url) as store:
            async with store.plans.alone("b") as fresh:
                assert fresh
                other = asyncio.create_task(_fresh(store))
                async with store.plans.alone("another"):
                    pass
                row = Planned(campaign_id("b", "k"), "k", NOW, b"{}")
                assert await store.plans.add("b", QueueName("q"), [part([row])]) == 1
                assert not other.done()
            assert not await other


async def _fresh(store: PostgresStore) -> bool:
    async with store.plans.alone("b") as fresh:
        return fresh
