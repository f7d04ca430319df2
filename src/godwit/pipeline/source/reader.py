"""Reads a range of a journal chunk by chunk and yields Arrow batches."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from godwit.core.errors import JournalLost
from godwit.core.journal.shards import Position
from godwit.core.logs import get_logger
from godwit.pipeline.source.offsets import RowRange
from godwit.pipeline.spark.sync_broker import SyncBroker

if TYPE_CHECKING:
    import pyarrow as pa

log = get_logger(__name__)
READ_ROWS: Final = 10_000


class ChunkConverter(Protocol):
    """Converts chunks of one shard to Arrow."""

    def add(self, chunks: Sequence[bytes], after: int, until: int) -> int:
        """Add the rows of chunks after `after` and up to `until`; return the seq of the last chunk's last row."""
        ...

    def complete(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches that are complete."""
        ...

    def remaining(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows."""
        ...


def read_batches(
    url: str, wanted: Sequence[RowRange], converter: Callable[[str], ChunkConverter], *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ranges as the batches that the converters of their shards make."""
    if not wanted:
        return
    # Rows live until their batch is made and hold no cycles: collecting garbage among them only costs time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        with SyncBroker(url) as opened:
            for part in wanted:
                yield from _range_batches(opened, part, converter(part.shard), fail_on_data_loss=fail_on_data_loss)
    finally:
        if collecting:
            gc.enable()


def _range_batches(
    opened: SyncBroker, wanted: RowRange, converter: ChunkConverter, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    after = wanted.after
    while after < wanted.until:
        try:
            chunks = read_chunks(opened, wanted, after)
        except JournalLost as lost:
            after = _skip(opened, wanted, after, lost, fail_on_data_loss=fail_on_data_loss)
            continue
        if not chunks:
            raise JournalLost(wanted.shard, f"rows {after + 1:,} to {wanted.until:,}", "fewer")
        after = max(after, converter.add(chunks, after, wanted.until))
        yield from converter.complete()
    yield from converter.remaining()


def merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches with those of few rows put together: Spark pays for each batch."""
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        gathered.append(batch)
        rows += batch.num_rows
        if rows >= READ_ROWS:
            yield from _joined(gathered)
            gathered, rows = [], 0
    yield from _joined(gathered)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    import pyarrow as pa

    return pa.Table.from_batches(batches).combine_chunks().to_batches() if len(batches) > 1 else batches


def read_chunks(opened: SyncBroker, wanted: RowRange, after: int) -> list[bytes]:
    """Return the next chunks of a range."""
    position, limit = Position(wanted.epoch, after), min(READ_ROWS, wanted.until - after)
    return opened.ask(lambda journal: journal.read(wanted.shard, position, limit=limit))


def _skip(opened: SyncBroker, wanted: RowRange, after: int, lost: JournalLost, *, fail_on_data_loss: bool) -> int:
    """Return where to continue when rows were trimmed while they were being read."""
    ends = opened.ask(lambda journal: journal.shards()).get(wanted.shard)
    if fail_on_data_loss or ends is None or ends.epoch != wanted.epoch or ends.first_seq - 1 <= after:
        raise lost
    until = ends.first_seq - 1
    log.warning("journal rows were lost", shard=wanted.shard, rows=until - after, first=after + 1, last=until)
    return until
