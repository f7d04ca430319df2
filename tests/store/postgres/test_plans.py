"""The hot queries find their rows by index, however large the tables are."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from godwit.store.postgres.database import sql
from godwit.store.postgres.record import SETTINGS, prepare
from tests.servers.postgres import fresh_database

LOADED = """
INSERT INTO queue_messages (queue_name, message_id, type, payload, metadata)
    SELECT 'orders', 'm' || n, 'order', '{}', '{}' FROM generate_series(1, 30000) n;
INSERT INTO queue_deliveries (queue_name, consumer_group, publish_seq, message_id, status, updated_at)
    SELECT 'orders', 'default', n, 'm' || n, 'pending', now() FROM generate_series(1, 30000) n;
SELECT godwit_ensure_day('queue_messages_history', current_date);
SELECT godwit_ensure_day('queue_deliveries_history', current_date);
INSERT INTO queue_messages_history (
    queue_name, message_id, type, priority, payload, metadata, status, finished_at
)
    SELECT 'orders', 'h' || n, 'order', 5, '{}', '{}', 'completed', current_date FROM generate_series(1, 30000) n;
INSERT INTO queue_deliveries_history (
    queue_name, consumer_group, publish_seq, message_id, status, retry_count, attempt, failures, crashes, updated_at,
    finished_at
)
    SELECT 'orders', 'default', n, 'h' || n, 'completed', 0, 1, 0, 0, now(), current_date
    FROM generate_series(1, 30000) n;
INSERT INTO idempotency_ledger (key, holder, claimed_until, expires_at)
    SELECT 'k' || n, 'h', now(), now() + interval '1 day' FROM generate_series(1, 30000) n;
INSERT INTO outbox (message_id, queue_name, envelope, due_at)
    SELECT 'm' || n, 'orders', '', now() + interval '1 day' FROM generate_series(1, 30000) n;
INSERT INTO journal_arrivals (shard, n, at, header, rows)
    SELECT 'other#0', 1, 0, '', '' FROM generate_series(1, 30000) n;
ANALYZE;
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with fresh_database() as made:
        yield made


@pytest.fixture
async def connection(url: str) -> AsyncIterator[Any]:
    opened = await asyncpg.connect(url)
    try:
        if not await opened.fetchval("SELECT count(*) FROM outbox"):
            await opened.execute(LOADED)
        await prepare(opened)
        yield opened
    finally:
        await opened.close()


def scans(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Give every table of a plan with how it is read."""
    if "Relation Name" in plan and "Scan" in plan["Node Type"]:
        yield plan["Relation Name"], plan["Node Type"]
    for part in plan.get("Plans", ()):
        yield from scans(part)


async def explained(connection: Any, query: str, *arguments: Any) -> list[tuple[str, str]]:
    return list(scans(json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) {query}", *arguments))[0]["Plan"]))


DAY = timedelta(days=1)
NOW = datetime.now(UTC)
HOT: list[tuple[str, tuple[Any, ...]]] = [
    ("messages/open_message", ("m7",)),
    ("messages/deliveries", ("m7",)),
    ("messages/finished_message", ("h7",)),
    ("messages/finished_deliveries", ("h7",)),
    ("ledger/look", ("k7",)),
    ("ledger/finish", ("k7", "h", None, DAY)),
    ("ledger/release", ("k7", "h")),
    ("ledger/sweep", (100,)),
    ("outbox/claim", (DAY, 100)),
    ("outbox/forwarded", ([1, 2, 3],)),
    ("journal/number", ("orders#0", 0, 0, 100)),
]


@pytest.mark.parametrize(("name", "arguments"), HOT, ids=[name for name, _ in HOT])
async def test_a_hot_query_reads_no_table_from_end_to_end(
    connection: Any, name: str, arguments: tuple[Any, ...]
) -> None:
    found = await explained(connection, sql(name), *arguments)
    assert found
    assert [scan for scan in found if scan[1] == "Seq Scan"] == []


@pytest.mark.parametrize("size", [10, 1_000])
async def test_the_recorders_statements_find_open_rows_by_index(connection: Any, size: int) -> None:
    async with connection.transaction():
        for setting, value in SETTINGS.items():
            await connection.execute(f"SET LOCAL {setting} = {value}")
        await connection.execute(
            "INSERT INTO incoming_deliveries "
            "(queue_name, consumer_group, publish_seq, message_id, finished_at, superseded) "
            "SELECT 'orders', 'default', n, 'm' || n, CASE WHEN n % 2 = 0 THEN now() END, false "
            "FROM generate_series(1, $1) n",
            size,
        )
        ids = [f"m{number}" for number in range(1, size + 1)]
        for name, arguments in (
            ("messages/end_deliveries", ()),
            ("messages/change_deliveries", ()),
            ("messages/finish_messages", (ids, [0] * size)),
            ("messages/change_messages", (ids,)),
        ):
            found = await explained(connection, sql(name), *arguments)
            known = [scan for scan in found if scan[0] in ("queue_deliveries", "queue_messages")]
            assert known
            assert [scan for scan in known if scan[1] == "Seq Scan"] == [], name


STAGED = """
INSERT INTO staging_plan (run_id, id, key, deliver_at, envelope)
    SELECT $1, md5(n::text)::uuid, 'k' || n, now() + interval '1 day', '{}' FROM generate_series($2::int, $3::int) n
"""
FILLED = """
INSERT INTO schedule_firings (id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope)
    SELECT id, 'b', key, 'q', id::text, deliver_at, deliver_at, envelope FROM staging_plan
"""


def kinds(plan: dict[str, Any]) -> Iterator[str]:
    """Give what a plan does, step by step."""
    yield plan["Node Type"]
    for part in plan.get("Plans", ()):
        yield from kinds(part)


@pytest.mark.parametrize("name", ["plans/gone", "plans/apply"])
async def test_a_large_plan_is_joined_as_a_whole_whatever_was_staged_before(name: str) -> None:
    arguments = {"plans/gone": ("new", "b", NOW, NOW + 7 * DAY), "plans/apply": ("new", "b", "q")}[name]
    with fresh_database() as made:
        opened = await asyncpg.connect(made)
        try:
            await opened.execute(STAGED, "old", 1, 30_000)
            await opened.execute(FILLED)
            await opened.execute("ANALYZE staging_plan")  # as the server does by itself now and then
            await opened.execute("DELETE FROM staging_plan")
            await opened.execute(STAGED, "new", 5_000, 35_000)
            await opened.execute(sql("plans/look"))
            plan = json.loads(await opened.fetchval(f"EXPLAIN (FORMAT JSON) {sql(name)}", *arguments))[0]["Plan"]
        finally:
            await opened.close()
    assert "Nested Loop" not in set(kinds(plan)), plan
