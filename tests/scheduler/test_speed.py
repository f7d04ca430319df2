"""What keeps schedulers fast however much is scheduled: indexes for hot statements, and ticks blind for the future."""

from __future__ import annotations

import json
import sqlite3
import statistics
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from godwit.core.schedule.schedules import campaign_id
from godwit.store.contract import Store
from godwit.store.postgres.database import sql as postgres_sql
from godwit.store.sqlite.file import sql as sqlite_sql
from godwit.store.sqlite.store import SqliteStore
from tests.scheduler.builders import HOUR, LEASE, NOON, QUEUE, firing, rule
from tests.scheduler.conftest import emptied
from tests.scheduler.memory_managers import MemoryManagers

FEW, MANY = 1_000, 100_000
FILL = """
INSERT INTO schedule_firings (id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope)
SELECT id, 'future', n::text, 'mail', id::text, at, at, '{}'
FROM (
    SELECT gen_random_uuid() AS id, n, $2::timestamptz + n * interval '1 second' AS at
    FROM generate_series(1, $1) AS n
) AS rows
"""
IDS = [campaign_id("future", str(number)) for number in range(100)]
HOT: dict[str, tuple[tuple[Any, ...], str]] = {
    "due": ((NOON, 100, []), "idx_schedules_next_fire_at"),
    "claim": ((NOON, 1_000, NOON, "me", NOON), "idx_schedule_firings_due"),
    "claim_again": ((NOON, 1_000, "me", NOON), "idx_schedule_firings_unconfirmed"),
    "confirm": ((IDS, "me", NOON), "schedule_firings_pkey"),
    "wake": ((NOON, 1_000), "idx_schedule_firings_again"),
    "cancelling": ((NOON, 1_000), "idx_schedule_firings_again"),
    "of_schedule": (("daily", NOON), "idx_schedule_firings_schedule"),
    "of_campaign": (("spring", 1_000), "idx_schedule_firings_campaign"),
    "backlog": ((NOON,), "idx_schedule_firings_due"),
    "upcoming": ((100,), "idx_schedule_firings_due"),
}


async def test_hot_statements_use_their_index_on_postgres() -> None:
    connection = await asyncpg.connect(emptied())
    try:
        await connection.execute(FILL, 20_000, NOON + HOUR)
        await connection.execute(
            "INSERT INTO schedules (id, queue_name, envelope, cron, next_fire_at)"
            " SELECT 's' || n, 'mail', '', '* * * * *', $1::timestamptz + n * interval '1 minute'"
            " FROM generate_series(1, 5000) AS n",
            NOON,
        )
        await connection.execute("VACUUM ANALYZE schedule_firings, schedules")
        found = {}
        for name, (arguments, index) in HOT.items():
            async with connection.transaction():
                rows = await connection.fetch(f"EXPLAIN {postgres_sql(f'schedules/{name}')}", *arguments)
            plan = "\n".join(row[0] for row in rows)
            # What a scheduler holds is few rows, so that the index of the unconfirmed may serve as well as the ids'.
            indexes = (index, "idx_schedule_firings_unconfirmed") if name == "confirm" else (index,)
            found[name] = any(one in plan for one in indexes) and "Seq Scan on schedule_firings" not in plan
        assert found == dict.fromkeys(HOT, True)
    finally:
        await connection.close()


async def test_hot_statements_use_their_index_on_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        await store.schedules.put([firing(str(number), NOON + HOUR) for number in range(10)])
    connection = sqlite3.connect(path)
    try:
        found = {}
        for name, (arguments, index) in HOT.items():
            values = [json.dumps([str(one) for one in value]) if isinstance(value, list) else 0 for value in arguments]
            plan = str(connection.execute(f"EXPLAIN QUERY PLAN {sqlite_sql(f'schedules/{name}')}", values).fetchall())
            wanted = "sqlite_autoindex_schedule_firings" if index.endswith("_pkey") else index
            found[name] = wanted in plan and "SCAN schedule_firings'" not in plan
        assert found == dict.fromkeys(HOT, True)
    finally:
        connection.close()


@pytest.mark.serial
async def test_a_tick_is_as_quick_beside_many_future_schedules_as_beside_few() -> None:
    """At a smaller size than `./dev bench scheduler`, which has ten million."""
    url = emptied()
    connection = await asyncpg.connect(url)
    managers = MemoryManagers(url)
    try:
        medians = []
        async with managers.open() as mq:
            filled = 0
            for count in (FEW, MANY):
                await connection.execute(FILL, count - filled, NOON + 2 * HOUR)
                filled = count
                await connection.execute("VACUUM ANALYZE schedule_firings")
                found = []
                for _ in range(15):
                    began = perf_counter()
                    await mq.scheduler.tick()
                    found.append(perf_counter() - began)
                medians.append(statistics.median(found[3:]))
        assert medians[1] / medians[0] < 1.5, medians
    finally:
        await connection.close()


async def test_claiming_and_confirming_is_done_in_batches_of_a_thousand(store: Store) -> None:
    """Each claim is one statement, whatever waits behind it."""
    schedules = store.schedules
    await schedules.add(rule())
    await schedules.put([firing(str(number)) for number in range(2_500)])
    sizes, seen = [], set[UUID]()
    while claimed := await schedules.claim(now=NOON, until=NOON, limit=1_000, owner="a", lease=LEASE):
        sizes.append(len(claimed))
        confirmed = await schedules.confirm([one.id for one in claimed], owner="a", now=NOON)
        seen |= confirmed
        assert {one.queue for one in claimed} == {QUEUE}
        assert timedelta(0) == claimed[0].deliver_at - NOON
    assert sizes == [1_000, 1_000, 500]
    assert len(seen) == 2_500
