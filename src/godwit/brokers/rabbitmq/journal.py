"""Telling the journal to a store: what the ledger wrote is handed on, in order, at least once.

Of all processes with this ledger one tells at a time. How far it got is a reader's position in the ledger, written
after the store has the rows; who comes after a crash in between looks at the end of the store's journal and leaves out
what is there already, known by message, attempt and event.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from godwit.brokers.rabbitmq.ledger import queries
from godwit.brokers.rabbitmq.ledger.file import LedgerFile
from godwit.core.journal.chunks import Chunk, decode_chunk, rows_of
from godwit.core.journal.external_journal import JournalStep, JournalWriter
from godwit.core.journal.shards import Position

READER: Final = "store"
ROWS: Final = 2_000
_TURN: Final = "godwit.telling"
_TURN_LASTS: Final = timedelta(seconds=30)
_IDENTITY: Final = ("event", "group", "message_id", "publish_seq", "attempt", "delivery_id")

Seen = set[tuple[Any, ...]]


class JournalForwarder:
    """Hands the ledger's journal on to one writer."""

    def __init__(self, ledger: LedgerFile, writer: JournalWriter) -> None:
        self._ledger, self._writer = ledger, writer
        self._certain: set[str] = set()
        """Shards of which this process knows that the position is what the store has."""

    async def tell(self) -> int:
        """Hand on what is new, unless another process does; return the number of rows."""
        turn = await self._ledger.step(lambda tx: queries.put(tx, _TURN, b"", None, _TURN_LASTS))
        if turn is None:
            self._certain.clear()  # the other one moves the positions
            return 0
        try:
            shards = await self._ledger.step(queries.shards)
            return sum([await self._tell(shard) for shard in shards])
        finally:
            await self._ledger.step(lambda tx: queries.delete(tx, _TURN))

    async def _tell(self, shard: str) -> int:
        after = (await self._ledger.step(lambda tx: queries.committed(tx, READER))).get(shard)
        forwarded = 0
        while True:
            chunks = [decode_chunk(data) for data in await self._read(shard, after)]
            if not chunks:
                return forwarded
            seen: Seen = set() if shard in self._certain else await self._end_of(shard)
            steps = [step for chunk in chunks if (step := _step(chunk, shard, after, seen)).rows]
            if steps:
                await self._writer.append(shard, steps)
            forwarded += sum(len(step.rows) for step in steps)
            after = Position(chunks[-1].epoch, chunks[-1].last_seq)
            await self._commit(shard, after)
            self._certain.add(shard)

    async def _read(self, shard: str, after: Position | None) -> list[bytes]:
        return await self._ledger.step(lambda tx: queries.read(tx, shard, after, ROWS))

    async def _commit(self, shard: str, position: Position) -> None:
        await self._ledger.step(lambda tx: queries.commit(tx, READER, shard, position))

    async def _end_of(self, shard: str) -> Seen:
        """Return what the last rows of the store's journal are about."""
        kept = (await self._writer.shards()).get(shard)
        if kept is None or kept.last_seq < kept.first_seq:
            return set()
        start = Position(kept.epoch, max(kept.first_seq - 1, kept.last_seq - 2 * ROWS))
        chunks = await self._writer.read(shard, start, limit=2 * ROWS)
        return {identity(row) for data in chunks for row in rows_of(decode_chunk(data), shard)}


def identity(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a row is about, whatever number and time it has."""
    return tuple(row.get(field) for field in _IDENTITY)


def _step(chunk: Chunk, shard: str, after: Position | None, seen: Seen) -> JournalStep:
    rows = [
        values
        for row, values in zip(rows_of(chunk, shard), chunk.rows, strict=True)
        if (after is None or row["seq"] > after.seq) and (not seen or identity(row) not in seen)
    ]
    return JournalStep(
        at_ms=chunk.at,
        event=chunk.event,
        queue=chunk.queue,
        group=chunk.group,
        worker=chunk.worker,
        depth=chunk.depth,
        actor=chunk.actor,
        app_version=chunk.app_version,
        rows=rows,
    )
