"""The broker's own listing of its copies, as a table: what an audit compares open copies with.

Copies of a few queues at a time become columns, and leave the driver's memory as a file once there are many.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from godwit.brokers.contract import Broker, ShardEnds, Snapshot
from godwit.core.errors import QueueNotFound
from godwit.core.journal.projection import CopyState
from godwit.core.journal.shards import Position, shard_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LISTING: Final = "shard string, epoch string, queue string, group string, publish_seq long, message_id string"
_SCHEMA: Final = pa.schema(
    [
        ("shard", pa.string()),
        ("epoch", pa.string()),
        ("queue", pa.string()),
        ("group", pa.string()),
        ("publish_seq", pa.int64()),
        ("message_id", pa.string()),
    ]
)
AT_ONCE: Final = 50
"""Queues that are listed together, when they hold little."""
MOST_COPIES: Final = 100_000
"""Copies that are listed together, and held in memory; more go to a file."""


class BrokerListing:
    """The copies of a broker, and the position of each journal that lists them all.

    `folder` is where copies go that are too many for the driver's memory.
    """

    def __init__(self, folder: Path) -> None:
        self.positions: dict[str, Position] = {}
        self._tables: list[pa.Table] = []
        self._file = folder / f"listing-{secrets.token_hex(4)}.parquet"
        self._writer: pq.ParquetWriter | None = None

    async def take(self, broker: Broker, shards: Mapping[str, ShardEnds]) -> None:
        """List the copies of these shards; those of removed queues hold none."""
        depths = {
            str(stats.name): sum(group.depth + group.dead for group in stats.groups) for stats in await broker.stats()
        }
        for some in _in_turns(shards, depths):
            snapshots = await asyncio.gather(*(_snapshot(broker, shard, depths) for shard in some))
            for shard, snapshot in zip(some, snapshots, strict=True):
                ends = shards[shard]
                self.add(shard, snapshot or Snapshot(position=Position(ends.epoch, ends.last_seq), copies=()))

    def add(self, shard: str, snapshot: Snapshot) -> None:
        """Add the copies of a shard."""
        self.positions[shard] = snapshot.position
        for start in range(0, len(snapshot.copies), MOST_COPIES):
            self._tables.append(_table(shard, snapshot.position.epoch, snapshot.copies[start : start + MOST_COPIES]))
            if sum(map(len, self._tables)) > MOST_COPIES:
                self._spill()

    def table(self, spark: SparkSession) -> DataFrame:
        """Return the copies."""
        if self._writer is not None:
            self._spill()
            self._writer.close()
            return spark.read.schema(LISTING).parquet(str(self._file))
        if not self._tables:
            return spark.createDataFrame([], LISTING)
        return spark.createDataFrame(pa.concat_tables(self._tables).combine_chunks())

    def forget(self) -> None:
        """Delete what was written."""
        self._tables = []
        self._file.unlink(missing_ok=True)

    def _spill(self) -> None:
        if self._writer is None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._file, _SCHEMA)
        for table in self._tables:
            self._writer.write_table(table, row_group_size=MOST_COPIES)
        self._tables = []


async def _snapshot(broker: Broker, shard: str, known: Mapping[str, int]) -> Snapshot | None:
    queue, partition = shard_parts(shard) or (shard, 0)
    if queue not in known:
        return None
    try:
        return await broker.journal.snapshot(shard if partition else queue)
    except QueueNotFound:
        return None  # removed meanwhile


def _in_turns(shards: Mapping[str, ShardEnds], depths: Mapping[str, int]) -> Iterator[Sequence[str]]:
    """Yield shards that can be listed together."""
    some: list[str] = []
    copies = 0
    for shard in sorted(shards):
        mine = depths.get((shard_parts(shard) or (shard, 0))[0], 0)
        if some and (len(some) >= AT_ONCE or copies + mine > MOST_COPIES):
            yield some
            some, copies = [], 0
        some.append(shard)
        copies += mine
    if some:
        yield some


def _table(shard: str, epoch: str, copies: Sequence[CopyState]) -> pa.Table:
    columns = {
        "shard": pa.array([shard] * len(copies), pa.string()),
        "epoch": pa.array([epoch] * len(copies), pa.string()),
        "queue": pa.array([copy.queue for copy in copies], pa.string()),
        "group": pa.array([copy.group for copy in copies], pa.string()),
        "publish_seq": pa.array([copy.publish_seq for copy in copies], pa.int64()),
        "message_id": pa.array([copy.message_id for copy in copies], pa.string()),
    }
    return pa.table(columns, _SCHEMA)
