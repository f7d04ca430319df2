"""The audit as a part of a batch: open copies, kept in the lake and carried from batch to batch.

Datasets beside the journal's: `open` (copies that have not ended, replaced with each batch), `findings` (what cannot
have happened, added to) and `audited` (the shards and groups in the audit's scope, replaced when they change).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from godwit.core.clock import SYSTEM_CLOCK, Clock, from_ms
from godwit.core.journal.lifecycle import BIRTHS, REMOVALS
from godwit.core.journal.vocabulary import Event
from godwit.core.logs import get_logger
from godwit.core.queues import GroupSpec
from godwit.pipeline.audit import drop_completed
from godwit.pipeline.audit.copy_lifecycle import COLUMNS
from godwit.pipeline.batch.parts import PreparedPart
from godwit.pipeline.batch.rollup import advances
from godwit.pipeline.lake.files import Lake
from godwit.pipeline.spark.connections import Connections
from godwit.pipeline.transforms import audit
from godwit.store.pipelines import LakeFile, PipelineAdvance

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_TYPES: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "string": StringType(),
    "timestamp": TimestampType(),
}


def _schema(columns: str) -> StructType:
    """Return a schema from its text; Spark's own parser of such texts needs a session."""
    return StructType([StructField(name, _TYPES[kind]) for name, kind in map(str.split, columns.split(", "))])


OPEN: Final = "open"
FINDINGS: Final = "findings"
SCOPES: Final = "audited"
OPEN_SCHEMA: Final = _schema(f"{audit.OPEN}, at timestamp")
FINDINGS_SCHEMA: Final = _schema(
    "kind string, shard string, queue string, group string, publish_seq long, message_id string, at timestamp, "
    "what string"
)
log = get_logger(__name__)
SCOPES_SCHEMA: Final = _schema(
    "shard string, group string, ordered boolean, epoch string, first_seq long, at timestamp"
)


class AuditScope(msgspec.Struct, frozen=True, order=True):
    """A shard audited from `first_seq` on, or, with a `group`, whether that group keeps order."""

    shard: str
    group: str | None
    ordered: bool
    epoch: str | None
    first_seq: int | None


class AuditPart:
    """Follows every copy from its arrival to its end."""

    columns = drop_completed.READ

    def __init__(
        self, connections: Connections, lake: Lake, *, accept_loss: bool = False, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._connections, self._lake, self._accept_loss, self._clock = connections, lake, accept_loss, clock
        self.key = audit_key(lake)

    def prepare(self, rows: DataFrame, run_id: str) -> PreparedPart:
        """Continue from the open copies; write the copies open now and the findings."""
        short = _without_completed(rows).persist()
        try:
            return self._follow(rows, short, run_id)
        finally:
            short.unpersist()

    def _follow(self, rows: DataFrame, short: DataFrame, run_id: str) -> PreparedPart:
        overview = _overview(short)
        read = advances(overview, accept_loss=self._accept_loss)
        if not read:
            return PreparedPart()
        spark, now = rows.sparkSession, from_ms(self._clock.now_ms())
        before = {dataset: self._files(dataset) for dataset in (OPEN, SCOPES)}
        opened = self._lake.read(spark, before[OPEN], OPEN_SCHEMA)
        scopes_before = _scopes(self._lake.read(spark, before[SCOPES], SCOPES_SCHEMA))
        scopes = _scopes_after(scopes_before, read, _groups(overview))
        unique = drop_completed.arrivals_are_unique(_arrived(overview), _highest_open(opened) if before[OPEN] else {})
        if not unique:
            log.info("a copy may have arrived twice, the audit follows all rows", run=run_id)
        tables = audit.follow_copies(
            (short if unique else rows).select(*COLUMNS),
            opened.drop("at"),
            _ordered(spark, scopes),
            removals=any(overview["removals"].to_pylist()),
        )
        try:
            add = self._write(tables.open.withColumn("at", F.lit(now)), run_id, OPEN)
            wrong = _findings(tables.findings, scopes, rows, now)
            if not wrong.isEmpty():
                add += self._write(wrong, run_id, FINDINGS)
        finally:
            tables.steps.unpersist()
        remove = [file.path for file in before[OPEN]]
        if scopes != scopes_before:
            add += self._write(_scope_rows(spark, scopes, now), run_id, SCOPES)
            remove += [file.path for file in before[SCOPES]]
        return PreparedPart(advances=read, add=add, remove=remove)

    def reread(self, rows: DataFrame, prepared: PreparedPart) -> DataFrame:  # noqa: ARG002 # nothing to read instead
        """Return the rows themselves."""
        return rows

    def _files(self, dataset: str) -> list[LakeFile]:
        return self._connections.pipelines(lambda state: state.files(self._lake.name, dataset))

    def _write(self, rows: DataFrame, run_id: str, dataset: str) -> list[LakeFile]:
        return self._lake.write(rows, run_id, dataset=dataset).files


def audit_key(lake: Lake) -> str:
    """Return the name of an audit's position."""
    return f"audit {lake.name}"


def _without_completed(rows: DataFrame) -> DataFrame:
    """Drop completed copies; of bodies, read only those that say how a group was created."""
    created = F.when(F.col("event") == Event.GROUP_CREATED.value, F.col("body")).alias("body")
    wanted = rows.select(*(created if name == "body" else F.col(name) for name in drop_completed.READ))
    return wanted.mapInArrow(drop_completed.drop_completed, drop_completed.schema())


def _overview(rows: DataFrame) -> pa.Table:
    """Return the contents of a batch by shard: rows, arrivals, removals and created groups."""
    arrived = F.when(F.col("lowest").isNotNull(), F.struct("group", "lowest", "arrivals"))
    created = F.when(F.col("event") == Event.GROUP_CREATED.value, F.struct("seq", "group", "body"))
    read = rows.groupBy("shard", "epoch").agg(
        F.sum("n").alias("n"),
        F.min("first_seq").alias("first_seq"),
        F.max("last_seq").alias("last_seq"),
        F.sum("seq_sum").alias("seq_sum"),
        F.max("last_at_ms").alias("last_at_ms"),
        F.count_if(F.col("event").isin(*(event.value for event in REMOVALS))).alias("removals"),
        F.collect_list(created).alias("created"),
        F.collect_list(arrived).alias("arrived"),
    )
    return read.toArrow()


def _arrived(overview: pa.Table) -> Iterator[tuple[str, str, int, bytes | None]]:
    """Yield the arrivals that tasks reported: shard, group, and which copies."""
    for shard in overview.to_pylist():
        for arrived in shard["arrived"]:
            yield shard["shard"], arrived["group"], arrived["lowest"], arrived["arrivals"]


def _highest_open(opened: DataFrame) -> dict[tuple[str, str], int]:
    """Return the highest publish_seq that is open, by shard and group."""
    rows = opened.groupBy("shard", "group").agg(F.max("publish_seq").alias("highest")).collect()
    return {(row["shard"], row["group"]): row["highest"] for row in rows}


def _groups(overview: pa.Table) -> list[tuple[str, str, bool]]:
    """Return the created groups and whether they keep order, in order of creation."""
    return [
        (shard["shard"], group["group"], _keeps_order(group["body"]))
        for shard in overview.to_pylist()
        for group in sorted(shard["created"], key=lambda created: int(created["seq"]))
    ]


def _keeps_order(body: bytes | None) -> bool:
    return body is not None and msgspec.json.decode(bytes(body), type=GroupSpec).message_ordering


def _scopes(state: DataFrame) -> frozenset[AuditScope]:
    return frozenset(
        AuditScope(row["shard"], row["group"], row["ordered"], row["epoch"], row["first_seq"])
        for row in state.collect()
    )


def _scopes_after(
    known: frozenset[AuditScope], read: Sequence[PipelineAdvance], groups: Sequence[tuple[str, str, bool]]
) -> frozenset[AuditScope]:
    """Return the scopes after a batch: the newest state of each group, the first row of each shard."""
    first = {(scope.shard, scope.epoch): scope for scope in known if scope.group is None}
    for advance in read:
        beginning = AuditScope(advance.shard, None, False, advance.epoch, advance.first)  # noqa: FBT003 # a shard has no order
        first.setdefault((advance.shard, advance.epoch), beginning)
    order = {(scope.shard, scope.group): scope for scope in known if scope.group is not None}
    order |= {(shard, group): AuditScope(shard, group, ordered, None, None) for shard, group, ordered in groups}
    return frozenset((*first.values(), *order.values()))


def _ordered(spark: SparkSession, scopes: frozenset[AuditScope]) -> DataFrame:
    pairs = [(scope.shard, scope.group) for scope in sorted(scopes, key=str) if scope.ordered]
    return spark.createDataFrame(pairs, "shard string, group string")


def _findings(findings: DataFrame, scopes: frozenset[AuditScope], rows: DataFrame, now: datetime) -> DataFrame:
    """Leave out findings that only seem wrong because the journal's beginning is missing.

    A copy that seems unborn there, but arrived among these rows, had ended and was not followed any more.
    """
    partial = sorted({scope.shard for scope in scopes if scope.group is None and (scope.first_seq or 1) > 1})
    unborn = F.col("shard").isin(partial) & F.col("what").endswith("was unborn")
    kept = findings
    if partial:
        kept, doubtful = findings.where(~unborn), findings.where(unborn)
        if not doubtful.isEmpty():
            arrived = rows.where(F.col("event").isin(*(event.value for event in BIRTHS))).select(*audit.COPY)
            kept = kept.unionByName(doubtful.join(arrived, list(audit.COPY), "left_semi").select(*audit.FINDING))
    return kept.select(*(F.col(name) for name in audit.FINDING[:-2]), F.coalesce("at", F.lit(now)).alias("at"), "what")


def _scope_rows(spark: SparkSession, scopes: frozenset[AuditScope], now: datetime) -> DataFrame:
    rows = [
        (scope.shard, scope.group, scope.ordered, scope.epoch, scope.first_seq, now)
        for scope in sorted(scopes, key=str)
    ]
    return spark.createDataFrame(rows, SCOPES_SCHEMA)


class AuditStart(msgspec.Struct, frozen=True):
    """The first audited row of a shard; when it is not row 1, the rows before it are unknown."""

    shard: str
    epoch: str
    first_seq: int


class AuditState:
    """The results an audit has published so far."""

    def __init__(self, spark: SparkSession, connections: Connections, lake: Lake) -> None:
        self._spark, self._connections, self._lake = spark, connections, lake

    @property
    def open(self) -> DataFrame:
        """The copies that have not ended."""
        return self._read(OPEN, OPEN_SCHEMA).drop("at")

    @property
    def findings(self) -> DataFrame:
        """The steps and orders that cannot have happened."""
        return self._read(FINDINGS, FINDINGS_SCHEMA)

    def beginnings(self) -> list[AuditStart]:
        """Return where the audit of each shard begins."""
        known = _scopes(self._read(SCOPES, SCOPES_SCHEMA))
        return sorted(
            (
                AuditStart(scope.shard, scope.epoch or "", scope.first_seq or 1)
                for scope in known
                if scope.group is None
            ),
            key=lambda scope: (scope.shard, scope.epoch),
        )

    def _read(self, dataset: str, schema: StructType) -> DataFrame:
        files = self._connections.pipelines(lambda state: state.files(self._lake.name, dataset))
        return self._lake.read(self._spark, files, schema)
