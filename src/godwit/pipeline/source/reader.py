"""Journals read from synchronous code: the bridge between Spark's workers and a broker's async port."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from godwit.core.errors import JournalLost
from godwit.core.journal import Position
from godwit.core.logs import get_logger
from godwit.pipeline.source.offsets import RowRange
from godwit.pipeline.spark.sync_broker import SyncBroker

if TYPE_CHECKING:
    import pyarrow as pa

log = get_logger(__name__)
READ_ROWS: Final = 10_000


class ChunkConverter(Protocol):
    """Turns chunks of one shard into Arrow."""

    def add(self, chunks: Sequence[bytes], after: int, until: int) -> int:
        """Take the rows of chunks beyond `after` and up to `until`; return the seq of the last chunk's last row."""
        ...

    def full(self) -> Iterator[pa.RecordBatch]:
        """Give what need not wait for more."""
        ...

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Give what is left."""
        ...


def read_batches(
    url: str, wanted: RowRange, turner: ChunkConverter, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """Give the rows of a range as what `turner` makes of them."""
    # Rows live until their batch is made and hold no cycles: looking for garbage among them only costs time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        with SyncBroker(url) as opened:
            after = wanted.after
            while after < wanted.until:
                try:
                    chunks = read_chunks(opened, wanted, after)
                except JournalLost as lost:
                    after = _skip(opened, wanted, after, lost, fail_on_data_loss=fail_on_data_loss)
                    continue
                if not chunks:
                    raise JournalLost(wanted.shard, f"rows {after + 1:,} to {wanted.until:,}", "fewer")
                after = max(after, turner.add(chunks, after, wanted.until))
                yield from turner.full()
        yield from turner.rest()
    finally:
        if collecting:
            gc.enable()


def read_chunks(opened: SyncBroker, wanted: RowRange, after: int) -> list[bytes]:
    """Return the next chunks of a range."""
    place, limit = Position(wanted.epoch, after), min(READ_ROWS, wanted.until - after)
    return opened.ask(lambda journal: journal.read(wanted.shard, place, limit=limit))


def _skip(opened: SyncBroker, wanted: RowRange, after: int, lost: JournalLost, *, fail_on_data_loss: bool) -> int:
    """Return where to go on when rows were trimmed while they were being read."""
    ends = opened.ask(lambda journal: journal.shards()).get(wanted.shard)
    if fail_on_data_loss or ends is None or ends.epoch != wanted.epoch or ends.first_seq - 1 <= after:
        raise lost
    until = ends.first_seq - 1
    log.warning("journal rows were lost", shard=wanted.shard, rows=until - after, first=after + 1, last=until)
    return until
