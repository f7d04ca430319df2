"""What the pipeline must have made of a journal, counted row by row in plain Python, far from Spark."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pyarrow.parquet as pq

from godwit.brokers.urls import connect
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.journal.shards import Position
from godwit.store.pipelines import HISTOGRAM_COLUMNS, MINUTE_COLUMNS
from godwit.store.urls import connect as connect_store

Table = dict[tuple[Any, ...], tuple[Any, ...]]
_KEYS = 3


def journal_rows(url: str) -> list[dict[str, Any]]:
    """Every row of every shard, as the broker tells it."""

    async def read() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        async with connect(url) as broker:
            for shard, ends in (await broker.journal.shards()).items():
                place = Position(ends.epoch, ends.first_seq - 1)
                while chunks := await broker.journal.read(shard, place, limit=10_000):
                    for chunk in map(decode_chunk, chunks):
                        found += rows_of(chunk, shard)
                        place = Position(chunk.epoch, chunk.last_seq)
        return found

    return asyncio.run(read())


class Expected:
    """Minutes, histograms and days of some rows."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.minutes: dict[tuple[Any, ...], list[int]] = {}
        self.histogram: Counter[tuple[Any, ...]] = Counter()
        for row in rows:
            self._count(row)

    def _count(self, row: dict[str, Any]) -> None:
        minute, queue, group, event = row["at"] // 60_000 * 60_000, row["queue"], row["group"], row["event"]
        arrived = event in ("enqueued", "scheduled")
        timed = row.get("run_ms") if event == "acked" else row.get("wait_ms") if event == "delivered" else None
        for key, arrivals in (
            ((minute, queue, group), arrived),
            ((minute, queue, None), arrived and row["copy"] == 0),
        )[0 if group is not None else 1 :]:
            sums = self.minutes.setdefault(key, [0] * (len(MINUTE_COLUMNS) - _KEYS))
            sums[0] += arrivals
            for place, name in enumerate(("acked", "dead_lettered", "nacked", "message_expired", "delivered"), 1):
                sums[place] += event == name
            if timed is not None:
                place = 6 if event == "acked" else 8
                sums[place] += timed
                sums[place + 1] += 1
            sums[10] = max(sums[10], row["depth"] or 0)
        if timed is not None:
            metric = "processing_ms" if event == "acked" else "wait_ms"
            bucket = -1 if timed < 1 else math.ceil(math.log(timed) / math.log(1.02))
            self.histogram[minute, queue, group, metric, bucket] += 1

    def minute_table(self) -> Table:
        return {key: tuple(sums) for key, sums in self.minutes.items()}

    def histogram_table(self) -> Table:
        return {key: (n,) for key, n in self.histogram.items()}

    def day_table(self) -> Table:
        """Enqueued, processed, failed, retried, expired, delivered, average, peak, covered minutes, throughput."""
        days: dict[tuple[str, str, str | None], list[Any]] = {}
        spans: dict[tuple[str, str], list[int]] = {}
        for (minute, queue, group), sums in self.minutes.items():
            day = datetime.fromtimestamp(minute / 1000, UTC).date().isoformat()
            total = days.setdefault((day, queue, group), [0] * len(sums))
            for place, value in enumerate(sums):
                total[place] = max(total[place], value) if place == 10 else total[place] + value
            spans.setdefault((day, queue), []).append(minute)
        made: Table = {}
        for (day, queue, group), total in days.items():
            covered = (max(spans[day, queue]) - min(spans[day, queue])) // 60_000 + 1
            average = _rounded(total[6] / total[7]) if total[7] else 0
            made[day, queue, group] = (*total[:6], average, total[10], covered, total[1] / covered)
        return made


def _rounded(value: float) -> int:
    return math.floor(value + 0.5)


def stored_minutes(store: str) -> Table:
    return {row[:_KEYS]: row[_KEYS:] for row in _select(store, "queue_analytics_minute", MINUTE_COLUMNS)}


def stored_histogram(store: str) -> Table:
    return {row[:5]: row[5:] for row in _select(store, "queue_analytics_histogram", HISTOGRAM_COLUMNS)}


def stored_days(store: str) -> Table:
    async def read() -> Table:
        async with connect_store(store) as opened:
            return {
                (day.date, day.queue_name, day.consumer_group): (
                    day.messages_enqueued, day.messages_processed, day.messages_failed, day.messages_retried,
                    day.messages_expired, day.messages_delivered, day.average_processing_time_ms,
                    day.peak_queue_depth, day.minutes_covered, day.throughput_per_minute,
                )
                for day in await opened.pipelines.days()
            }  # fmt: skip

    return asyncio.run(read())


def _select(store: str, table: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    if store.startswith("sqlite:///"):
        with sqlite3.connect(store.removeprefix("sqlite:///")) as connection:
            found = connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
        connection.close()
        return found

    async def read() -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(store)
        try:
            rows = await connection.fetch(f"SELECT {', '.join(columns)} FROM {table}")
        finally:
            await connection.close()
        return [(int(row[0].timestamp() * 1000), *row[1:]) for row in map(tuple, rows)]

    return asyncio.run(read())


def lake_rows(store: str, folder: Path, name: str = "default") -> Iterator[tuple[str, int, str, str | None]]:
    """Shard, seq, event and message id of every row in the files that count."""

    async def files() -> list[str]:
        async with connect_store(store) as opened:
            return [file.path for file in await opened.pipelines.files(name, "journal")]

    for path in asyncio.run(files()):
        table = pq.ParquetFile(folder / name / path).read(["shard", "seq", "event", "message_id"])
        yield from zip(*(column.to_pylist() for column in table.columns), strict=True)


def assert_agreement(broker: str, store: str, lake: Path | None, *, analytics: bool = True) -> int:
    """Compare minutes, histograms, days and lake with the journal, to the row; return how many rows it has."""
    rows = journal_rows(broker)
    if analytics:
        expected = Expected(rows)
        assert stored_minutes(store) == expected.minute_table()
        assert stored_histogram(store) == expected.histogram_table()
        days = expected.day_table()
        found = stored_days(store)
        assert found.keys() == days.keys()
        for key, numbers in days.items():
            assert found[key][:-1] == numbers[:-1], key
            assert abs(found[key][-1] - numbers[-1]) <= 0.0051, key
    if lake is not None:
        told = Counter((row["shard"], row["seq"], row["event"], row.get("message_id")) for row in rows)
        assert Counter(lake_rows(store, lake)) == told
    return len(rows)
