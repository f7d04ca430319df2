"""The state of pipelines in a SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence

import msgspec

from godwit.core.fault_points import fault_point
from godwit.core.journal.shards import Position
from godwit.store.pipelines import (
    DayNumbers,
    HistogramRow,
    LakeFile,
    MinuteRow,
    PipelinePlace,
    Publication,
    Staged,
    StoredVerdict,
    check,
    check_removed,
    check_staged,
    oldest_wanted,
)
from godwit.store.sqlite.file import SqliteFile, sql


class SqlitePipelines:
    """Positions, staged numbers and manifests of one file."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def positions(self, pipeline: str) -> Mapping[str, Position]:
        return await self._file.read("reading a pipeline's position", lambda found: _positions(found, pipeline))

    async def places(self) -> list[PipelinePlace]:
        def look(connection: sqlite3.Connection) -> list[PipelinePlace]:
            return [PipelinePlace(**dict(row)) for row in connection.execute(sql("pipeline/places"))]

        return await self._file.read("reading the pipelines' positions", look)

    async def begin(self, pipeline: str, places: Mapping[str, Position]) -> None:
        rows = [
            {"pipeline": pipeline, "shard": shard, "epoch": place.epoch, "seq": place.seq}
            for shard, place in places.items()
        ]
        await self._file.write(
            "beginning a pipeline", lambda connection: connection.executemany(sql("pipeline/begin"), rows)
        )

    async def stage(self, run_id: str, minutes: Sequence[MinuteRow], histogram: Sequence[HistogramRow]) -> Staged:
        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(sql("pipeline/stage_minutes"), ((run_id, *row) for row in minutes))
            connection.executemany(sql("pipeline/stage_histogram"), ((run_id, *row) for row in histogram))

        # A power cut that loses what is staged also loses the position that would count it.
        await self._file.write("staging analytics", write, durable=False)
        return Staged(run_id=run_id, minutes=len(minutes), histogram=len(histogram))

    async def publish(self, publication: Publication) -> None:
        def write(connection: sqlite3.Connection) -> None:
            for pipeline, advances in publication.advances.items():
                check(pipeline, _positions(connection, pipeline), advances, accept_loss=publication.accept_loss)
                for one in advances:
                    connection.execute(sql("pipeline/advance"), {"pipeline": pipeline, **msgspec.structs.asdict(one)})
            for pipeline, state in publication.states.items():
                connection.execute(sql("pipeline/keep_state"), {"pipeline": pipeline, "state": state})
            _add(connection, publication)
            _replace(connection, publication)
            fault_point("pipeline.publishing")

        await self._file.write("publishing a batch", write)

    async def days(self, *, since: str | None = None) -> list[DayNumbers]:
        def look(connection: sqlite3.Connection) -> list[DayNumbers]:
            return [DayNumbers(**dict(row)) for row in connection.execute(sql("pipeline/days"), {"since": since})]

        return await self._file.read("reading analytics", look)

    async def files(self, lake: str, dataset: str, *, days: Sequence[str] | None = None) -> list[LakeFile]:
        asked = {"lake": lake, "dataset": dataset, "days": None if days is None else json.dumps(list(days))}

        def look(connection: sqlite3.Connection) -> list[LakeFile]:
            return [LakeFile(**dict(row)) for row in connection.execute(sql("pipeline/files"), asked)]

        return await self._file.read("reading a lake's manifest", look)

    async def removed(self, lake: str, *, before_ms: int) -> list[str]:
        asked = {"lake": lake, "before": before_ms}
        return await self._file.read(
            "reading a lake's manifest",
            lambda connection: [row["path"] for row in connection.execute(sql("pipeline/removed"), asked)],
        )

    async def listed(self, lake: str) -> frozenset[str]:
        return await self._file.read(
            "reading a lake's manifest",
            lambda connection: frozenset(
                row["path"] for row in connection.execute(sql("pipeline/listed"), {"lake": lake})
            ),
        )

    async def unlist(self, lake: str, paths: Sequence[str]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(sql("pipeline/unlist"), [{"lake": lake, "path": path} for path in paths])

        await self._file.write("tidying a lake's manifest", write)

    async def state(self, pipeline: str) -> bytes | None:
        def look(connection: sqlite3.Connection) -> bytes | None:
            row = connection.execute(sql("pipeline/state"), {"pipeline": pipeline}).fetchone()
            return None if row is None else row["state"]

        return await self._file.read("reading a pipeline's state", look)

    async def set_back(self, pipeline: str, shard: str, position: Position, former: str) -> bool:
        values = {"pipeline": pipeline, "shard": shard, "epoch": position.epoch, "seq": position.seq, "former": former}
        return await self._file.write(
            "setting a pipeline back",
            lambda connection: connection.execute(sql("pipeline/set_back"), values).rowcount == 1,
        )

    async def attest(self, pipeline: str, verdict: StoredVerdict) -> bool:
        values = {"pipeline": pipeline, **msgspec.structs.asdict(verdict)}
        return await self._file.write(
            "adding a verdict", lambda connection: connection.execute(sql("pipeline/add_verdict"), values).rowcount == 1
        )

    async def last_verdict(self, pipeline: str) -> StoredVerdict | None:
        def look(connection: sqlite3.Connection) -> StoredVerdict | None:
            row = connection.execute(sql("pipeline/last_verdict"), {"pipeline": pipeline}).fetchone()
            return None if row is None else StoredVerdict(**dict(row))

        return await self._file.read("reading the last verdict", look)

    async def verdicts(self, pipeline: str, *, after: int = 0) -> list[StoredVerdict]:
        def look(connection: sqlite3.Connection) -> list[StoredVerdict]:
            rows = connection.execute(sql("pipeline/verdicts"), {"pipeline": pipeline, "after": after})
            return [StoredVerdict(**dict(row)) for row in rows]

        return await self._file.read("reading verdicts", look)

    async def forget(self, pipeline: str) -> int:
        def write(connection: sqlite3.Connection) -> int:
            connection.execute(sql("pipeline/forget_state"), {"pipeline": pipeline})
            return connection.execute(sql("pipeline/forget"), {"pipeline": pipeline}).rowcount

        return await self._file.write("forgetting a pipeline", write)


def _positions(connection: sqlite3.Connection, pipeline: str) -> dict[str, Position]:
    rows = connection.execute(sql("pipeline/positions"), {"pipeline": pipeline})
    return {row["shard"]: Position(row["epoch"], row["seq"]) for row in rows}


def _add(connection: sqlite3.Connection, publication: Publication) -> None:
    """Add the staged numbers, counted; days are the sums of what is added to their minutes."""
    if publication.staged is None:
        return
    run = {"run": publication.staged.run_id}
    check_staged(publication, *connection.execute(sql("pipeline/staged"), run).fetchone())
    for step in ("add_minutes", "add_histogram", "add_days", "derive_days"):
        connection.execute(sql(f"pipeline/{step}"), run)
    old = {**run, "oldest": oldest_wanted(publication.staged.run_id)}
    for step in ("unstage_minutes", "unstage_histogram"):
        connection.execute(sql(f"pipeline/{step}"), old)


def _replace(connection: sqlite3.Connection, publication: Publication) -> None:
    """List new files in place of old ones."""
    lake = {"lake": publication.lake}
    for file in publication.add:
        connection.execute(
            sql("pipeline/add_file"), {**lake, "run": publication.run_id, **msgspec.structs.asdict(file)}
        )
    removed = sum(
        connection.execute(sql("pipeline/remove_file"), {**lake, "path": path}).rowcount for path in publication.remove
    )
    check_removed(publication, removed)
