"""The parts of a batch: each prepares its own result, all are published together.

A part has a position of its own (`key`), so that parts can run alone and together in any order: rows at or below its
position are not for it. Parts at the same position share one read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from godwit.core.journal.shards import Position
from godwit.pipeline.batch.rollup import advances, histogram_rows, minute_rows
from godwit.pipeline.lake.files import JOURNAL, Lake
from godwit.pipeline.source.schema import journal_schema
from godwit.pipeline.spark.connections import Connections
from godwit.pipeline.transforms.analytics import COLUMNS, partials
from godwit.store.pipelines import LakeFile, PipelineAdvance, Staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ANALYTICS: Final = "analytics"
"""A position for the whole store: its tables do not name a pipeline, so only one may add to them."""


class PreparedPart(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that a part wants published with the batch; `state` is kept with its position."""

    advances: Sequence[PipelineAdvance] = ()
    staged: Staged | None = None
    add: Sequence[LakeFile] = ()
    remove: Sequence[str] = ()
    state: bytes | None = None


class BatchPart(Protocol):
    """Makes a result of a batch."""

    @property
    def key(self) -> str:
        """The name of its position."""
        ...

    @property
    def columns(self) -> Sequence[str]:
        """The journal columns it reads."""
        ...

    def prepare(self, rows: DataFrame, run_id: str) -> PreparedPart:
        """Compute the result of rows; nothing counts before it is published. No advances mean no rows."""
        ...

    def reread(self, rows: DataFrame, prepared: PreparedPart) -> DataFrame:
        """Return the same rows from where they are cheaper to read again."""
        ...


class AnalyticsPart:
    """Adds a batch to minutes, histograms and days."""

    key = ANALYTICS
    columns = COLUMNS

    def __init__(self, connections: Connections, *, accept_loss: bool = False, summed: bool = False) -> None:
        self._connections, self._accept_loss, self._summed = connections, accept_loss, summed

    def prepare(self, rows: DataFrame, run_id: str) -> PreparedPart:
        """Reduce the rows to partial sums, unless the reader did so, and stage the numbers."""
        table = (rows if self._summed else partials(rows)).toArrow()
        read = advances(table, accept_loss=self._accept_loss)
        if not read:
            return PreparedPart()
        minutes, histogram = minute_rows(table), histogram_rows(table)
        staged = self._connections.pipelines(lambda state: state.stage(run_id, minutes, histogram))
        return PreparedPart(advances=read, staged=staged)

    def reread(self, rows: DataFrame, prepared: PreparedPart) -> DataFrame:  # noqa: ARG002 # nothing to read instead
        """Return the rows themselves."""
        return rows


class LakePart:
    """Writes a batch to the lake."""

    columns = tuple(journal_schema().names)

    def __init__(self, lake: Lake, *, accept_loss: bool = False) -> None:
        self._lake, self._accept_loss = lake, accept_loss
        self.key = lake.key

    def prepare(self, rows: DataFrame, run_id: str) -> PreparedPart:
        """Write the rows to files, and read back what the files hold."""
        written = self._lake.write(rows, run_id)
        return PreparedPart(advances=advances(written.facts, accept_loss=self._accept_loss), add=written.files)

    def reread(self, rows: DataFrame, prepared: PreparedPart) -> DataFrame:
        """Return the rows from the files just written."""
        files = [file for file in prepared.add if file.dataset == JOURNAL]
        return self._lake.read(rows.sparkSession, files) if files else rows


def rows_beyond(rows: DataFrame, positions: dict[str, Position]) -> DataFrame:
    """Leave out rows at or below a position."""
    import pyarrow as pa
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    # A join, because a plan with a condition for each of many shards is too deep for Spark.
    shards, reached = list(positions), list(positions.values())
    columns = {
        "shard": pa.array(shards, pa.string()),
        "epoch": pa.array([position.epoch for position in reached], pa.string()),
        "seen": pa.array([position.seq for position in reached], pa.int64()),
    }
    seen = rows.sparkSession.createDataFrame(pa.table(columns))
    unseen = F.col("seen").isNull() | (F.col("seq") > F.col("seen"))
    return rows.join(F.broadcast(seen), ["shard", "epoch"], "left").where(unseen).select(*rows.columns)
