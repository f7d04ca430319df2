"""Recording one shard alone: what cannot be read or stored is passed over, and everything around it is recorded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from godwit.core.errors import JournalDamaged, StoreRefused
from godwit.core.journal.batches import batches
from godwit.core.journal.changes import Batch, Step
from godwit.core.journal.chunks import Chunk, decode_chunk
from godwit.core.journal.shards import Position
from godwit.core.limits import bounded_ms
from godwit.core.logs import get_logger

log = get_logger(__name__)


class _Header(msgspec.Struct, frozen=True, array_like=True):
    """What has to be known of a chunk to pass it over."""

    version: int
    epoch: str
    first_seq: int
    at: int
    event: Any
    queue: Any
    group: Any
    worker: Any
    depth: Any
    rows: list[Any]


_headers: Final = msgspec.msgpack.Decoder(_Header)
_replace = msgspec.structs.replace


class ShardRecorder:
    """Records what one shard told. `record` carries out a batch and moves the position that `position` returns."""

    def __init__(
        self, shard: str, record: Callable[[Batch], Awaitable[None]], position: Callable[[], Position | None]
    ) -> None:
        self._shard, self._record, self._position = shard, record, position

    async def carry_out(self, data: Sequence[bytes]) -> None:
        """Record chunks; raises `JournalDamaged` where even the length of one cannot be read."""
        readable: list[Chunk] = []
        for stored in data:
            try:
                readable.append(decode_chunk(stored))
            except (msgspec.MsgspecError, RecursionError) as error:
                await self._rows(readable)
                readable = []
                await self._pass_over_chunk(stored, error)
        await self._rows(readable)

    async def _rows(self, chunks: Sequence[Chunk]) -> None:
        """Record chunks; what the store refuses is halved until the row to blame is alone."""
        try:
            for batch in batches([(self._shard, self._position(), chunks)]):
                await self._record(batch)
        except StoreRefused as error:
            left = _beyond(chunks, self._position())
            if sum(len(chunk.rows) for chunk in left) <= 1:
                await self._pass_over(left[-1], error)
                return
            for half in _halves(left):
                await self._rows(half)

    async def _pass_over_chunk(self, stored: bytes, error: Exception) -> None:
        try:
            header = _headers.decode(stored)
        except (msgspec.MsgspecError, RecursionError):
            position = self._position()
            raise JournalDamaged(self._shard, 0 if position is None else position.seq, str(error)) from error
        await self._pass_over(header, error)

    async def _pass_over(self, chunk: Chunk | _Header, error: Exception) -> None:
        """Move the position beyond rows that cannot be recorded."""
        before, after = self._position(), Position(chunk.epoch, chunk.first_seq + len(chunk.rows) - 1)
        if before is not None and before.epoch == after.epoch and after.seq <= before.seq:
            return
        log.error(
            "journal rows cannot be recorded",
            shard=self._shard, seq=after.seq, rows=len(chunk.rows), event=str(chunk.event), error=str(error),
        )  # fmt: skip
        batch = Batch()
        batch.steps[self._shard] = Step(self._shard, before, after, bounded_ms(chunk.at), lost=len(chunk.rows))
        await self._record(batch)


def _beyond(chunks: Sequence[Chunk], position: Position | None) -> list[Chunk]:
    """Return what lies beyond a position."""
    left = []
    for chunk in chunks:
        seen = position.seq - chunk.first_seq + 1 if position is not None and position.epoch == chunk.epoch else 0
        if seen <= 0:
            left.append(chunk)
        elif seen < len(chunk.rows):
            left.append(_replace(chunk, first_seq=chunk.first_seq + seen, rows=chunk.rows[seen:]))
    return left


def _halves(chunks: Sequence[Chunk]) -> tuple[Sequence[Chunk], Sequence[Chunk]]:
    middle = len(chunks) // 2
    if middle:
        return chunks[:middle], chunks[middle:]
    (chunk,) = chunks
    half = len(chunk.rows) // 2
    first = _replace(chunk, rows=chunk.rows[:half])
    return (first,), (_replace(chunk, first_seq=chunk.first_seq + half, rows=chunk.rows[half:]),)
