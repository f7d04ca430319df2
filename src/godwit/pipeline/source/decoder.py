"""Decodes chunks of a journal to Arrow batches: by column where possible, otherwise by row.

Columns are cut out of the chunks' bytes (`column_decoder`). When those hold something unexpected (rows of unequal
length, values of another kind, damage), the chunks are decoded row by row (`row_decoder`), which knows all forms or
names what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from godwit.pipeline.source.column_decoder import batch_of
from godwit.pipeline.source.msgpack_values import Unexpected
from godwit.pipeline.source.row_decoder import RowDecoder, last_seq

BATCH_ROWS: Final = 30_000
"""Enough for a step of numpy to cost more than its call, few enough to stay near the processor."""
BATCH_BYTES: Final = 1 << 24


class ChunkDecoder:
    """Decodes chunks of one shard to batches of a schema's columns."""

    def __init__(self, schema: pa.Schema, shard: str, *, batch_rows: int = BATCH_ROWS) -> None:
        self._schema, self._shard, self._batch_rows = schema, shard, batch_rows
        self._row_decoder = RowDecoder(schema, shard)
        self._gathered: list[bytes] = []
        self._after = self._until = self._last = self._bytes = 0

    def add(self, chunks: Sequence[bytes], after: int, until: int) -> int:
        """Gather the rows of chunks after `after` and up to `until`; return the seq of the last chunk's last row."""
        if not self._gathered:
            self._after = after
        self._gathered += chunks
        self._bytes += sum(map(len, chunks))
        self._until, self._last = until, last_seq(chunks[-1], self._shard, after)
        return self._last

    def complete(self) -> Iterator[pa.RecordBatch]:
        """Yield the gathered rows when they are enough for a batch."""
        if self._last - self._after >= self._batch_rows or self._bytes >= BATCH_BYTES:
            yield from self.remaining()

    def remaining(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows."""
        chunks, self._gathered, self._bytes = self._gathered, [], 0
        if not chunks:
            return
        try:
            batch = batch_of(chunks, self._schema, self._shard, self._after, self._until)
        except Unexpected:
            yield from self._row_decoder.batches(chunks, self._after, self._until)
        else:
            yield batch
