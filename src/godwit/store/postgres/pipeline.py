"""The state of pipelines in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import asyncpg

from godwit.core.errors import StoreUnavailable
from godwit.core.fault_points import fault_point
from godwit.core.journal.shards import Position
from godwit.store.pipelines import (
    HISTOGRAM_COLUMNS,
    MINUTE_COLUMNS,
    DayNumbers,
    HistogramRow,
    LakeFile,
    MinuteRow,
    PipelineAdvance,
    PipelinePlace,
    Publication,
    Staged,
    StoredVerdict,
    check,
    check_removed,
    check_staged,
    oldest_wanted,
)
from godwit.store.postgres.database import PostgresDatabase, sql
from godwit.store.postgres.day_partitions import DayPartitions


class PostgresPipelines:
    """Positions, staged numbers and manifests of one database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._days = DayPartitions("queue_analytics_minute", "queue_analytics_histogram")

    async def positions(self, pipeline: str) -> Mapping[str, Position]:
        rows = await self._database.fetch("reading a pipeline's position", "pipeline/positions", pipeline)
        return _positions(rows)

    async def places(self) -> list[PipelinePlace]:
        rows = await self._database.fetch("reading the pipelines' positions", "pipeline/places")
        return [PipelinePlace(**row) for row in rows]

    async def begin(self, pipeline: str, places: Mapping[str, Position]) -> None:
        rows = [(shard, place.epoch, place.seq) for shard, place in sorted(places.items())]
        if rows:
            columns = map(list, zip(*rows, strict=True))
            await self._database.fetch("beginning a pipeline", "pipeline/begin", pipeline, *columns)

    async def stage(self, run_id: str, minutes: Sequence[MinuteRow], histogram: Sequence[HistogramRow]) -> Staged:
        async with self._database.connection("staging analytics") as connection:
            await self._days.ensure(connection, {row[0] for row in minutes})
            async with connection.transaction():
                await _copy(connection, "staging_analytics_minute", run_id, MINUTE_COLUMNS, minutes)
                await _copy(connection, "staging_analytics_histogram", run_id, HISTOGRAM_COLUMNS, histogram)
        return Staged(run_id=run_id, minutes=len(minutes), histogram=len(histogram))

    async def publish(self, publication: Publication) -> None:
        async with self._database.transaction("publishing a batch") as connection:
            for pipeline, advances in sorted(publication.advances.items()):
                await connection.execute(sql("pipeline/lock"), pipeline)
                stored = _positions(await connection.fetch(sql("pipeline/positions"), pipeline))
                check(pipeline, stored, advances, accept_loss=publication.accept_loss)
                await _advance(connection, pipeline, advances)
            for pipeline, state in sorted(publication.states.items()):
                await connection.execute(sql("pipeline/keep_state"), pipeline, state)
            await _add(connection, publication)
            await _replace(connection, publication)
            fault_point("pipeline.publishing")

    async def days(self, *, since: str | None = None) -> list[DayNumbers]:
        day = None if since is None else date.fromisoformat(since)
        return [DayNumbers(**row) for row in await self._database.fetch("reading analytics", "pipeline/days", day)]

    async def files(self, lake: str, dataset: str, *, days: Sequence[str] | None = None) -> list[LakeFile]:
        wanted = None if days is None else [date.fromisoformat(day) for day in days]
        rows = await self._database.fetch("reading a lake's manifest", "pipeline/files", lake, dataset, wanted)
        return [LakeFile(**row) for row in rows]

    async def removed(self, lake: str, *, before_ms: int) -> list[str]:
        rows = await self._database.fetch("reading a lake's manifest", "pipeline/removed", lake, before_ms)
        return [row["path"] for row in rows]

    async def listed(self, lake: str) -> frozenset[str]:
        rows = await self._database.fetch("reading a lake's manifest", "pipeline/listed", lake)
        return frozenset(row["path"] for row in rows)

    async def unlist(self, lake: str, paths: Sequence[str]) -> None:
        await self._database.fetch("tidying a lake's manifest", "pipeline/unlist", lake, list(paths))

    async def state(self, pipeline: str) -> bytes | None:
        rows = await self._database.fetch("reading a pipeline's state", "pipeline/state", pipeline)
        return rows[0]["state"] if rows else None

    async def set_back(self, pipeline: str, shard: str, position: Position, former: str) -> bool:
        values = (pipeline, shard, position.epoch, position.seq, former)
        return bool(await self._database.fetch("setting a pipeline back", "pipeline/set_back", *values))

    async def attest(self, pipeline: str, verdict: StoredVerdict) -> bool:
        values = (pipeline, verdict.number, verdict.body, verdict.hash)
        return bool(await self._database.fetch("adding a verdict", "pipeline/add_verdict", *values))

    async def last_verdict(self, pipeline: str) -> StoredVerdict | None:
        rows = await self._database.fetch("reading the last verdict", "pipeline/last_verdict", pipeline)
        return StoredVerdict(**rows[0]) if rows else None

    async def verdicts(self, pipeline: str, *, after: int = 0) -> list[StoredVerdict]:
        rows = await self._database.fetch("reading verdicts", "pipeline/verdicts", pipeline, after)
        return [StoredVerdict(**row) for row in rows]

    async def forget(self, pipeline: str) -> int:
        await self._database.fetch("forgetting a pipeline", "pipeline/forget_state", pipeline)
        return len(await self._database.fetch("forgetting a pipeline", "pipeline/forget", pipeline))


def _positions(rows: Sequence[Any]) -> dict[str, Position]:
    return {row["shard"]: Position(row["epoch"], row["seq"]) for row in rows}


async def _copy(
    connection: asyncpg.Connection, table: str, run_id: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    records = [(run_id, datetime.fromtimestamp(row[0] // 1000, UTC), *row[1:]) for row in rows]
    await connection.copy_records_to_table(table, records=records, columns=["run_id", *columns])


async def _advance(connection: asyncpg.Connection, pipeline: str, advances: Sequence[PipelineAdvance]) -> None:
    places = [(one.shard, one.epoch, one.last, one.at_ms) for one in advances]
    if places:
        await connection.execute(sql("pipeline/advance"), pipeline, *map(list, zip(*places, strict=True)))


async def _add(connection: asyncpg.Connection, publication: Publication) -> None:
    """Add the staged numbers, counted; days are the sums of what is added to their minutes."""
    if publication.staged is None:
        return
    run_id = publication.staged.run_id
    found = await connection.fetchrow(sql("pipeline/staged"), run_id)
    check_staged(publication, found["minutes"], found["histogram"])
    for step in ("add_minutes", "add_histogram", "add_days", "derive_days"):
        await connection.execute(sql(f"pipeline/{step}"), run_id)
    for step in ("unstage_minutes", "unstage_histogram"):
        await connection.execute(sql(f"pipeline/{step}"), run_id, oldest_wanted(run_id))


async def _replace(connection: asyncpg.Connection, publication: Publication) -> None:
    """List new files in place of old ones."""
    if publication.add:
        files = [
            (one.path, one.dataset, date.fromisoformat(one.day), one.rows, one.bytes, one.first_seq, one.last_seq)
            for one in publication.add
        ]
        columns = map(list, zip(*files, strict=True))
        try:
            await connection.execute(sql("pipeline/add_files"), publication.lake, publication.run_id, *columns)
        except asyncpg.UniqueViolationError as error:
            raise StoreUnavailable("the lake's manifest", str(error), "Give every file a name of its own.") from error
    if publication.remove:
        removed = await connection.fetch(sql("pipeline/remove_files"), publication.lake, list(publication.remove))
        check_removed(publication, len(removed))
