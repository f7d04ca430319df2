"""The tables are those of the specification, but for the differences named there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.servers.postgres import fresh_database
from tests.store import seed_tables
from tests.store.conformance.harness import harness_of
from tests.store.tables import rows

COLUMNS = """
SELECT attname AS name, format_type(atttypid, atttypmod) AS type, NOT attnotnull AS nullable,
    pg_get_expr(adbin, adrelid) AS preset
FROM pg_attribute
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped
"""
UNIQUE = """
SELECT (
    SELECT array_agg(attname ORDER BY place)
    FROM unnest(indkey) WITH ORDINALITY AS key (attnum, place)
    JOIN pg_attribute ON attrelid = indrelid AND pg_attribute.attnum = key.attnum
) AS columns
FROM pg_index WHERE indrelid = $1::regclass AND indisunique
"""
FOREIGN = """
SELECT conrelid::regclass::text AS source, a.attname AS source_column, confrelid::regclass::text AS target,
    b.attname AS target_column
FROM pg_constraint
JOIN pg_attribute a ON a.attrelid = conrelid AND a.attnum = conkey[1]
JOIN pg_attribute b ON b.attrelid = confrelid AND b.attnum = confkey[1]
WHERE contype = 'f'
"""


@pytest.fixture
async def connection() -> AsyncIterator[Any]:
    with fresh_database() as url:
        opened = await asyncpg.connect(url)
        try:
            yield opened
        finally:
            await opened.close()


async def test_columns_types_and_defaults_are_those_of_the_specification(connection: Any) -> None:
    for table, wanted in seed_tables.SEED.items():
        found = {row["name"]: row for row in await connection.fetch(COLUMNS, table)}
        assert {name for name in found if (table, name) not in seed_tables.ADDED} == set(wanted), table
        for name, (type_, nullable, preset) in wanted.items():
            row = found[name]
            assert (row["nullable"], row["preset"]) == (nullable, preset), (table, name)
            if type_ == "timestamp without time zone":
                assert row["type"] == "timestamp with time zone", seed_tables.TIMES_HAVE_ZONES
            elif (table, name) in seed_tables.CHANGED:
                assert seed_tables.CHANGED[table, name].startswith(row["type"])
            else:
                assert row["type"] == type_, (table, name)


async def test_every_added_column_exists(connection: Any) -> None:
    for table, name in seed_tables.ADDED:
        assert name in {row["name"] for row in await connection.fetch(COLUMNS, table)}


async def test_unique_constraints_and_the_foreign_key_are_those_of_the_specification(connection: Any) -> None:
    for table, wanted in seed_tables.UNIQUE.items():
        added = {columns[1:] for columns in seed_tables.ADDED_UNIQUE if columns[0] == table}
        assert {tuple(row["columns"]) for row in await connection.fetch(UNIQUE, table)} == wanted | added, table
    found = {tuple(row.values()) for row in await connection.fetch(FOREIGN)}
    assert {key for key in found if key[0] in seed_tables.SEED} == seed_tables.FOREIGN


async def test_the_nine_indexes_of_the_specification_exist_as_named(connection: Any) -> None:
    for name, place in seed_tables.INDEXES.items():
        definition = await connection.fetchval("SELECT pg_get_indexdef($1::regclass)", name)
        table, columns = place.split(" ", 1)
        assert f"ON public.{table} USING btree {columns}" in definition
        assert ("NULLS NOT DISTINCT" in definition) == (name == "idx_queue_analytics_unique")


async def test_the_unique_index_takes_a_missing_group_as_one(connection: Any) -> None:
    insert = "INSERT INTO queue_analytics (date, queue_name, consumer_group) VALUES ('2026-01-01', 'q', NULL)"
    await connection.execute(insert)
    with pytest.raises(asyncpg.UniqueViolationError):
        await connection.execute(insert)


async def test_the_sqlite_file_has_the_same_tables_columns_and_index_names(tmp_path: Path) -> None:
    with harness_of("sqlite", tmp_path) as harness:
        async with harness.open() as store:
            await store.ping()
        for table, wanted in seed_tables.SEED.items():
            found = {row["name"] for row in await rows(harness.url, f"PRAGMA table_info({table})")}
            assert found == set(wanted) | {name for where, name in seed_tables.ADDED if where == table}
        names = {row["name"] for row in await rows(harness.url, "SELECT name FROM sqlite_master WHERE type = 'index'")}
        assert set(seed_tables.INDEXES) <= names
