"""Starting over from a list of what the broker holds, where the journal no longer tells how it came about.

A broker that lost its last writes goes on under the same epoch with a lower seq: the rows that the tables know are
gone, and later ones carry their numbers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from godwit.brokers.contract import Journal, ShardEnds
from godwit.core.clock import Clock
from godwit.core.errors import JournalDamaged, JournalLost
from godwit.core.journal.changes import Address, Batch
from godwit.core.journal.chunks import decode_chunk
from godwit.core.journal.resync import forgotten, replaced, resynced
from godwit.core.journal.shards import Position, numbers_of, shard_parts
from godwit.core.limits import bounded_ms
from godwit.core.logs import get_logger
from godwit.store.contract import Messages
from godwit.telemetry.metrics import QueueMetricsCollector

log = get_logger(__name__)


class JournalResync:
    """Brings the tables of one shard in line with the broker. `record` carries out a batch and moves the position."""

    def __init__(
        self,
        journal: Journal,
        messages: Messages,
        record: Callable[[Batch], Awaitable[None]],
        *,
        metrics: QueueMetricsCollector | None,
        clock: Clock,
    ) -> None:
        self._journal, self._messages, self._record = journal, messages, record
        self._metrics, self._clock = metrics, clock

    async def overwritten(self, positions: Mapping[str, Position], shards: Mapping[str, ShardEnds]) -> set[str]:
        """Return the shards whose last recorded row is another one by now.

        The broker had lost rows and has written as many again: the numbers alone do not show that.
        """
        known = await self._messages.last_row_times()
        return {
            shard
            for shard, ends in shards.items()
            if shard in positions
            and shard in known
            and await self._is_another(shard, positions[shard], ends, known[shard])
        }

    async def _is_another(self, shard: str, position: Position, ends: ShardEnds, written_ms: int) -> bool:
        if position.epoch != ends.epoch or not ends.first_seq <= position.seq <= ends.last_seq:
            return False
        try:
            chunks = await self._journal.read(shard, Position(position.epoch, position.seq - 1), limit=1)
            chunk = decode_chunk(chunks[0]) if chunks else None
        except (JournalLost, msgspec.MsgspecError, RecursionError):
            return False  # a reader that goes on from there gets an error
        return chunk is not None and bounded_ms(chunk.at) != written_ms

    async def start_over(self, shard: str, before: Position | None, ends: ShardEnds, lost: JournalLost) -> None:
        """Record what the broker holds now instead of the rows that are lost."""
        if before is None or before.epoch != ends.epoch:
            known = await self._open_copies(shard)
            await self._record(forgotten(shard, before, ends.epoch, known, self._clock.now_ms()))
            before = Position(ends.epoch, 0)
            if ends.first_seq <= 1:
                self._report(shard, lost)
                return
        await self.resync(shard, before, lost)

    async def resync(self, shard: str, before: Position | None, why: JournalLost | JournalDamaged) -> None:
        """Bring the open copies of a shard in line with what the broker holds, and go on from there."""
        self._report(shard, why)
        queue, partition = shard_parts(shard) or (shard, 0)
        snapshot = await self._journal.snapshot(shard if partition else queue)
        known = await self._open_copies(shard)
        held = {copy.address: copy.message_id for copy in snapshot.copies}
        now_ms = self._clock.now_ms()
        gone = {address: was for address, was in known if held.get(address, was) != was}
        left = [(address, message_id) for address, message_id in known if address not in gone]
        batch = resynced(shard, before, snapshot.position, snapshot.copies, left, now_ms)
        written_ms = await self._written_ms(shard, snapshot.position, now_ms)
        batch.steps[shard] = msgspec.structs.replace(batch.steps[shard], at=written_ms)
        if gone and before is not None:
            await self._record(replaced(shard, before, gone.items(), now_ms))
        await self._record(batch)

    async def _written_ms(self, shard: str, position: Position, now_ms: int) -> int:
        """Return when the row at a position was written, as `overwritten` will find it."""
        try:
            chunks = await self._journal.read(shard, Position(position.epoch, max(0, position.seq - 1)), limit=1)
            return bounded_ms(decode_chunk(chunks[0]).at) if chunks else now_ms
        except (JournalLost, msgspec.MsgspecError, RecursionError):
            return now_ms

    def _report(self, shard: str, why: JournalLost | JournalDamaged) -> None:
        log.warning("journal lost before it was recorded", shard=shard, why=why.fact)
        if self._metrics is not None:
            self._metrics.recorder_lost()

    async def _open_copies(self, shard: str) -> list[tuple[Address, str]]:
        """Return the copies of a shard that the tables have as open."""
        numbers = numbers_of(shard)
        known = await self._messages.open_copies(shard.rpartition("#")[0])
        return [(address, message_id) for address, message_id in known if address[2] in numbers]
