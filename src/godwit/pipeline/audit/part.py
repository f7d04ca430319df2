"""The audit as a part of a batch: open copies, kept in the lake and carried from batch to batch.

Datasets beside the journal's: `open` (copies that have not ended, replaced with each batch) and `findings` (what cannot
have happened, added to). The coverage, which rows of which journals were followed, is stored with the position.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

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
from godwit.core.journal.lifecycle import REMOVALS
from godwit.core.journal.vocabulary import Event
from godwit.core.logs import get_logger
from godwit.pipeline.audit import drop_completed
from godwit.pipeline.audit.copy_lifecycle import COLUMNS
from godwit.pipeline.audit.coverage import Coverage, coverage_bytes, coverage_of, extended, is_former, unseen_numbers
from godwit.pipeline.audit.interruptions import Interruptions, Shard, interruptions_of
from godwit.pipeline.audit.overview import BatchOverview
from godwit.pipeline.batch.parts import PreparedPart
from godwit.pipeline.batch.rollup import advances
from godwit.pipeline.lake.files import Lake
from godwit.pipeline.spark.connections import Connections
from godwit.pipeline.transforms import audit
from godwit.store.pipelines import LakeFile

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
OPEN_SCHEMA: Final = _schema(f"{audit.OPEN}, at timestamp")
FINDINGS_SCHEMA: Final = _schema(
    "kind string, shard string, epoch string, queue string, group string, publish_seq long, message_id string, "
    "at timestamp, what string"
)
log = get_logger(__name__)


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
        overview = BatchOverview(_overview(short))
        read = advances(overview.totals, accept_loss=self._accept_loss)
        if not read:
            return PreparedPart()
        spark, now = rows.sparkSession, from_ms(self._clock.now_ms())
        before, known = self._files(OPEN), self._known()
        # Copies without a coverage are those of an audit that was forgotten.
        opened = self._lake.read(spark, before if known.coverage.shards else [], OPEN_SCHEMA).drop("at")
        opened = _renamed(opened, known.renames)
        coverage, gaps = extended(known.coverage, overview.runs, overview.created, overview.removals)
        removals = interruptions_of(overview.removals, ())
        tables = audit.follow_copies(
            self._followed(rows, short, overview, removals, _highest_open(opened) if before else {}),
            opened,
            _ordered(spark, coverage),
            interruptions=interruptions_of(overview.removals, gaps),
            unseen=unseen_table(spark, coverage),
        )
        try:
            add = self._write(tables.open.withColumn("at", F.lit(now)), run_id, OPEN)
            wrong = tables.findings.withColumn("at", F.coalesce("at", F.lit(now)))
            if not wrong.isEmpty():
                add += self._write(wrong, run_id, FINDINGS)
        finally:
            tables.steps.unpersist()
        return PreparedPart(
            advances=read, add=add, remove=[file.path for file in before], state=coverage_bytes(coverage)
        )

    def _followed(
        self,
        rows: DataFrame,
        short: DataFrame,
        overview: BatchOverview,
        removals: Interruptions,
        open_before: Mapping[drop_completed.Place, int],
    ) -> DataFrame:
        """Return the rows to follow: those without completed copies, or all where a copy may have arrived twice."""
        if not drop_completed.arrivals_are_unique(overview.arrived, open_before):
            log.info("a copy may have arrived twice, the audit follows all rows")
            return rows.select(*COLUMNS)
        return (_without_completed(rows, removals) if removals else short).select(*COLUMNS)

    def _known(self) -> KnownCoverage:
        return known_coverage(self._connections, self.key)

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


class KnownCoverage(NamedTuple):
    """The coverage so far; `renames` are the epochs of journals that the broker set back, with new names."""

    coverage: Coverage
    renames: Mapping[Shard, str]


def known_coverage(connections: Connections, key: str) -> KnownCoverage:
    """Return what an audit has covered; rows that it read before the broker was set back belong to another epoch."""
    stored = connections.pipelines(lambda state: state.state(key))
    positions = connections.pipelines(lambda state: state.positions(key))
    coverage = coverage_of(stored)
    renames = {
        (one.shard, one.epoch): positions[one.shard].epoch
        for one in coverage.shards
        if one.shard in positions and is_former(positions[one.shard].epoch, one.epoch)
    }
    return KnownCoverage(coverage.renamed(renames), renames)


def _renamed(opened: DataFrame, renames: Mapping[Shard, str]) -> DataFrame:
    """Give the open copies of journals that were set back the new names of their epochs."""
    if not renames:
        return opened
    names = [(*shard, name) for shard, name in sorted(renames.items())]
    table = opened.sparkSession.createDataFrame(names, "shard string, epoch string, former string")
    known = opened.join(F.broadcast(table), ["shard", "epoch"], "left")
    return known.withColumn("epoch", F.coalesce("former", "epoch")).select(*opened.columns)


def _without_completed(rows: DataFrame, removals: Interruptions = drop_completed.NO_INTERRUPTIONS) -> DataFrame:
    """Drop completed copies; of bodies, read only those that say how a group was created."""
    created = F.when(F.col("event") == Event.GROUP_CREATED.value, F.col("body")).alias("body")
    wanted = rows.select(*(created if name == "body" else F.col(name) for name in drop_completed.READ))
    return wanted.mapInArrow(lambda batches: drop_completed.drop_completed(batches, removals), drop_completed.schema())


def _overview(rows: DataFrame) -> pa.Table:
    """Return the contents of a batch by shard: runs of rows, arrivals, removals, created queues and groups."""
    created = F.col("event").isin(Event.GROUP_CREATED.value, Event.QUEUE_CREATED.value)
    removed = F.col("event").isin(*(event.value for event in REMOVALS))
    read = rows.groupBy("shard", "epoch").agg(
        F.collect_list(F.when(F.col("n").isNotNull(), F.struct(*drop_completed.FACTS))).alias("runs"),
        F.collect_list(F.when(F.col("lowest").isNotNull(), F.struct("group", *drop_completed.ARRIVED))).alias(
            "arrived"
        ),
        F.collect_list(F.when(created, F.struct("seq", "event", "group", "body"))).alias("created"),
        F.collect_list(F.when(removed, F.struct("seq", "event", "group"))).alias("removals"),
    )
    return read.toArrow()


def unseen_table(spark: SparkSession, coverage: Coverage) -> DataFrame | None:
    """Return the numbers of copies that may have arrived in rows that are missing; None when there are none."""
    rows = list(unseen_numbers(coverage))
    if not rows:
        return None
    schema = "shard string, epoch string, group string, spans array<struct<after: long, before: long>>"
    return spark.createDataFrame(rows, schema)


def _highest_open(opened: DataFrame) -> dict[drop_completed.Place, int]:
    """Return the highest publish_seq that is open, by shard, epoch and group."""
    rows = opened.groupBy(*audit.PLACE).agg(F.max("publish_seq").alias("highest")).collect()
    return {(row["shard"], row["epoch"], row["group"]): row["highest"] for row in rows}


def _ordered(spark: SparkSession, coverage: Coverage) -> DataFrame:
    places = [
        (one.shard, one.epoch, name, bool(group.ordered))
        for one in coverage.shards
        for name, group in sorted(one.groups.items())
        if group.ordered is not False
    ]
    return spark.createDataFrame(places, "shard string, epoch string, group string, in_order boolean")


class AuditState:
    """The results an audit has published so far."""

    def __init__(self, spark: SparkSession, connections: Connections, lake: Lake) -> None:
        self._spark, self._connections, self._lake = spark, connections, lake

    @property
    def open(self) -> DataFrame:
        """The copies that have not ended."""
        renames = known_coverage(self._connections, audit_key(self._lake)).renames
        return _renamed(self._read(OPEN, OPEN_SCHEMA).drop("at"), renames)

    @property
    def findings(self) -> DataFrame:
        """The steps and orders that cannot have happened."""
        return self._read(FINDINGS, FINDINGS_SCHEMA)

    def coverage(self) -> Coverage:
        """Return the rows that were followed, by journal."""
        return known_coverage(self._connections, audit_key(self._lake)).coverage

    def _read(self, dataset: str, schema: StructType) -> DataFrame:
        files = self._connections.pipelines(lambda state: state.files(self._lake.name, dataset))
        return self._lake.read(self._spark, files, schema)
