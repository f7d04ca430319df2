"""A stream over journals on the driver: offsets, admission of rows, lost rows, and acknowledgement to the broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from godwit.brokers.contract import Journal, ShardEnds
from godwit.core.journal.chunks import decode_chunk
from godwit.core.journal.shards import Position
from godwit.pipeline.source.offsets import (
    Positions,
    RowRange,
    acknowledge,
    check_available,
    chosen_shards,
    from_offset,
    ranges,
    resolve_offsets,
    task_ranges,
    to_offset,
)
from godwit.pipeline.source.options import ReadOptions
from godwit.pipeline.spark.sync_broker import SyncBroker


class JournalStream(SupportsTriggerAvailableNow):
    """The driver's side of a stream; it lives in one Python process for as long as the query runs."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._target: Positions | None = None

    # Spark's names

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a query without a checkpoint begins."""
        options = self._options
        with SyncBroker(options.url) as opened:
            return to_offset(opened.ask(lambda journal: resolve_offsets(journal, options.starting, options)))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how many rows a batch may have."""
        return ReadMaxRows(self._options.max_rows) if self._options.max_rows is not None else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit the stream to the rows there are now."""
        with SyncBroker(self._options.url) as opened:
            self._target = _ends(opened.ask(self._shards))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; when not all rows fit, the shard with the oldest row goes first."""
        positions = from_offset(start)
        with SyncBroker(self._options.url) as opened:
            # Spark never reports that a query's last batch is done; it is done when the next one is requested.
            self._acknowledge(opened, positions)
            shards = opened.ask(self._shards)
            ends = self._capped(shards)
            if self._options.fail_on_data_loss:  # otherwise it is logged once, when the batch is planned
                check_available(positions, shards, shards, fail=True)
            unread = {whole.shard: whole for whole in ranges(positions, ends, shards)}
            pending = sum(whole.rows for whole in unread.values())
            if isinstance(limit, ReadMaxRows) and pending > limit.max_rows:
                admitted = opened.ask(lambda journal: _admit_oldest(journal, unread, limit.max_rows))
                return to_offset({**positions, **_first_positions(positions, ends), **admitted})
        return to_offset({**positions, **ends})

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the ends of the journals; the rows between a batch's end and these are the lag."""
        with SyncBroker(self._options.url) as opened:
            return to_offset(_ends(opened.ask(self._shards)))

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge to the broker that everything up to `end` was read."""
        with SyncBroker(self._options.url) as opened:
            self._acknowledge(opened, from_offset(end))

    # Ours

    def tasks(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[tuple[RowRange, ...]]:
        """Return the ranges between two offsets, task by task; a shard with many rows yields several."""
        with SyncBroker(self._options.url) as opened:
            shards = opened.ask(self._shards)
        begin, until = from_offset(start), from_offset(end)
        check_available(begin, shards, until, fail=self._options.fail_on_data_loss)
        return task_ranges(ranges(begin, until, shards), self._options.rows_per_partition)

    async def _shards(self, journal: Journal) -> Mapping[str, ShardEnds]:
        return await chosen_shards(journal, self._options)

    def _capped(self, shards: Mapping[str, ShardEnds]) -> Positions:
        ends = _ends(shards)
        if self._target is None:
            return ends
        # A journal of a newer epoch has none of the rows of that time.
        return {
            name: position
            for name, position in self._target.items()
            if name in ends and ends[name].epoch == position.epoch
        }

    def _acknowledge(self, opened: SyncBroker, positions: Positions) -> None:
        reader = self._options.reader
        if reader is not None:
            opened.ask(lambda journal: acknowledge(journal, reader, positions))


def _ends(shards: Mapping[str, ShardEnds]) -> Positions:
    return {name: Position(ends.epoch, ends.last_seq) for name, ends in shards.items()}


def _first_positions(positions: Positions, ends: Positions) -> Positions:
    """Return the first positions of shards that were not read yet, so that an offset names all of its shards."""
    return {
        shard: Position(end.epoch, 0)
        for shard, end in ends.items()
        if shard not in positions or positions[shard].epoch != end.epoch
    }


async def _admit_oldest(journal: Journal, unread: Mapping[str, RowRange], rows: int) -> Positions:
    """Return how far each shard may be read, oldest rows first, until the row limit is used up."""
    ages = {}
    for shard, whole in unread.items():
        chunks = await journal.read(shard, Position(whole.epoch, whole.after), limit=1)
        ages[shard] = decode_chunk(chunks[0]).at if chunks else 0
    admitted: Positions = {}
    for shard in sorted(unread, key=lambda name: (ages[name], name)):
        whole = unread[shard]
        taken = min(rows, whole.rows)
        admitted[shard] = Position(whole.epoch, whole.after + taken)
        rows -= taken
    return admitted
