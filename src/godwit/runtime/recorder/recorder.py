"""The recorder: carries the journal into the state tables, with its position in the same transaction.

Any number may run. One that finds its position moved by another stands by, and goes on when no other does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from godwit.brokers.contract import Journal, ShardEnds
from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.error_text import error_text
from godwit.core.errors import BrokerError, JournalDamaged, JournalLost, StoreError
from godwit.core.fault_points import fault_point
from godwit.core.journal.batches import Piece, batches
from godwit.core.journal.changes import Batch
from godwit.core.journal.chunks import decode_chunk
from godwit.core.journal.shards import Position
from godwit.core.logs import get_logger
from godwit.runtime.recorder.pace import GATHER, Pace, RecorderLag
from godwit.runtime.recorder.resync import JournalResync
from godwit.runtime.recorder.single_shard import ShardRecorder
from godwit.runtime.troubles import Troubles
from godwit.store.contract import Messages
from godwit.telemetry.metrics import QueueMetricsCollector

READER: Final = "recorder"
LONGEST_IDLE: Final = timedelta(milliseconds=800)
"""How long what other processes did may stay unseen while nothing happens in this one."""
STANDBY: Final = timedelta(seconds=5)
COMMIT_EVERY_MS: Final = 1_000
RETAIN_EVERY_MS: Final = 600_000

log = get_logger(__name__)


class Recorder:
    """Records what the journal of a broker tells."""

    def __init__(
        self,
        journal: Journal,
        messages: Messages,
        *,
        retention: timedelta | None = None,
        batch_rows: int | None = None,
        metrics: QueueMetricsCollector | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._journal = journal
        self._messages = messages
        self._retention = retention
        self._batch_rows = batch_rows or messages.batch_rows
        self._metrics = metrics
        self._clock = clock
        self._resync = JournalResync(journal, messages, self._carry_out, metrics=metrics, clock=clock)
        self._positions: dict[str, Position] | None = None
        self._overwritten: set[str] | None = None
        """Shards that do not have the row any more up to which they are recorded; None: to be looked at."""
        self._uncommitted: dict[str, Position] = {}
        self._committed_ms = 0
        self._retained_ms = 0
        self._caught_up_ms: int | None = None
        self._noticed = asyncio.Event()
        self._pace = Pace()
        self.recorded = self.lost = 0
        """Transitions that were recorded, and those that could not be."""
        self.troubles = Troubles("recording", clock)
        """Shards that cannot be read or recorded at the moment."""
        self._uncommittable = Troubles("committing what is recorded", clock)
        self.lag = RecorderLag(rows=0, seconds=0.0)
        self.overtaken = False
        """Whether another recorder was quicker at the last tick."""

    # One step

    async def tick(self) -> int:
        """Record what the journal has now, up to a batch; return how many transitions."""
        if self._positions is None:
            self._positions = dict(await self._messages.positions())
        looked_ms = self._clock.now_ms()
        shards = await self._journal.shards()
        if self._overwritten is None:
            self._overwritten = await self._resync.overwritten(self._positions, shards)
        self._pace.looked(sum(ends.last_seq for ends in shards.values()), looked_ms)
        self.troubles.forget(shards)
        before, self.overtaken = self.recorded, False
        try:
            await self._record(await self._read(shards))
        except _Overtaken:
            self.overtaken = True
            self._positions = None
        recorded = self.recorded - before
        await self._tell_broker()
        self._measure(shards, looked_ms, recorded)
        return recorded

    async def _record(self, chunks: Mapping[str, list[bytes]]) -> None:
        """Record what was read, together if that can be, and shard by shard where it cannot."""
        positions = self._positions or {}
        pieces: list[Piece] = [(shard, positions.get(shard), map(decode_chunk, data)) for shard, data in chunks.items()]
        try:
            for batch in batches(pieces):
                fault_point("recorder.read")
                await self._carry_out(batch)
        except (_Overtaken, BrokerError, StoreError):
            raise
        except Exception as error:  # noqa: BLE001 - whichever shard is to blame, the others are recorded
            log.warning("a batch cannot be recorded as a whole", error=error_text(error))
        else:
            return
        for shard, data in chunks.items():
            await self._record_apart(shard, data)

    async def _carry_out(self, batch: Batch) -> None:
        if not await self._messages.record(batch):
            raise _Overtaken
        moved = {shard: step.after for shard, step in batch.steps.items()}
        if self._positions is not None:
            self._positions |= moved
        self._uncommitted |= moved
        for shard in moved:
            self.troubles.over(shard)
        if self._overwritten:
            self._overwritten.difference_update(moved)
        self.recorded += batch.rows
        lost = sum(step.lost for step in batch.steps.values())
        if lost:
            self._lost(lost)
            for why in batch.unusable:
                log.error("journal row cannot be used", shards=sorted(moved), row=why)

    def _lost(self, rows: int) -> None:
        self.lost += rows
        if self._metrics is not None:
            self._metrics.recorder_unusable(rows)

    async def _record_apart(self, shard: str, data: list[bytes]) -> None:
        """Record one shard without what cannot be recorded; one that cannot be at all waits, and the others go on."""
        alone = ShardRecorder(shard, self._carry_out, lambda: (self._positions or {}).get(shard))
        try:
            try:
                await alone.carry_out(data)
            except JournalDamaged as damaged:
                await self._resync.resync(shard, (self._positions or {}).get(shard), damaged)
        except (_Overtaken, StoreError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a shard fails with, the others are recorded
            self.troubles.began(shard, error)

    async def _read(self, shards: Mapping[str, ShardEnds]) -> dict[str, list[bytes]]:
        """Read every shard that has grown, a fair share of the batch from each; one that cannot be read waits."""
        positions = self._positions or {}
        grown = {
            shard: ends
            for shard, ends in shards.items()
            if (self._is_overwritten(shard) or _is_behind(positions.get(shard), ends))
            and not self.troubles.rests(shard)
        }
        share = max(1, self._batch_rows // max(1, len(grown)))
        chunks: dict[str, list[bytes]] = {}
        failed: dict[str, Exception] = {}
        for shard, ends in grown.items():
            before = positions.get(shard)
            try:
                try:
                    chunks[shard] = await self._chunks(shard, before, ends, share)
                except JournalLost as lost:
                    await self._resync.start_over(shard, before, ends, lost)
            except (_Overtaken, StoreError):
                raise
            except Exception as error:  # noqa: BLE001 - whatever a shard fails with, the others are recorded
                failed[shard] = error
        if failed and len(failed) == len(grown) and not self.troubles.resting():
            raise next(iter(failed.values()))  # it is not one shard: the broker is away
        for shard, problem in failed.items():
            self.troubles.began(shard, problem)
        return chunks

    def _is_overwritten(self, shard: str) -> bool:
        return self._overwritten is not None and shard in self._overwritten

    async def _chunks(self, shard: str, before: Position | None, ends: ShardEnds, limit: int) -> list[bytes]:
        held = f"rows {ends.first_seq:,} to {ends.last_seq:,}"
        if before is None and ends.first_seq > 1:
            raise JournalLost(shard, "its beginning", held)
        if before is not None and self._is_overwritten(shard):
            raise JournalLost(shard, f"row {before.seq:,} as it was recorded", f"{held} with another one in its place")
        return await self._journal.read(shard, before, limit=limit)

    async def _tell_broker(self) -> None:
        """Let the broker know, now and then, what it may trim."""
        now_ms = self._clock.now_ms()
        if self._uncommitted and now_ms - self._committed_ms >= COMMIT_EVERY_MS:
            self._committed_ms = now_ms
            for shard, position in list(self._uncommitted.items()):
                if self._uncommittable.rests(shard):
                    continue
                try:
                    await self._journal.commit(READER, shard, position)
                except JournalLost:
                    log.warning("journal replaced while it was recorded", shard=shard)
                except Exception as error:  # noqa: BLE001 - whatever a shard fails with, the others get on
                    self._uncommittable.began(shard, error)
                    continue
                self._uncommittable.over(shard)
                if self._uncommitted.get(shard) == position:
                    del self._uncommitted[shard]

    def _measure(self, shards: Mapping[str, ShardEnds], looked_ms: int, recorded: int) -> None:
        """Say how old the tables are: as old as the last look at the journal of which everything is recorded."""
        positions = self._positions or {}
        rows = sum(ends.rows_after(positions.get(shard)) for shard, ends in shards.items())
        if rows == 0 or self._caught_up_ms is None:
            self._caught_up_ms = looked_ms
        self.lag = RecorderLag(rows=rows, seconds=(self._clock.now_ms() - self._caught_up_ms) / 1000)
        if self._metrics is not None:
            self._metrics.recorder(recorded=recorded, lag_rows=rows, lag_seconds=self.lag.seconds)

    async def catch_up(self) -> None:
        """Record until nothing is left that was in the journal when this was called, or nothing moves."""
        ends = await self._journal.shards()
        before: dict[str, Position] | None = {}
        while True:
            await self.tick()
            positions = self._positions or {}
            missing = any(end.last_seq and end.rows_after(positions.get(shard)) for shard, end in ends.items())
            if not missing or (positions == before and not self.overtaken):
                return
            before = dict(positions)

    # The loop

    async def run(self) -> None:
        """Record until cancelled; an outage of broker or store is waited out."""
        idle = GATHER
        self._positions = self._overwritten = None
        while True:
            self._noticed.clear()
            try:
                recorded = await self.tick()
                await self._retain()
            except (BrokerError, StoreError) as error:
                log.warning("recorder waits", error=str(error))
                self._positions = self._overwritten = None
                await asyncio.sleep(1)
                continue
            idle = GATHER if recorded else min(2 * idle, LONGEST_IDLE)
            if self.overtaken:
                await asyncio.sleep(STANDBY.total_seconds())
            elif recorded >= self._batch_rows // 2:
                await asyncio.sleep(self._pace.rest(recorded, self._clock.now_ms(), self.lag.rows).total_seconds())
            else:
                await self._rest(idle)

    def notice(self) -> None:
        """Say that the journal has grown: it is recorded as soon as a moment's worth of it is together."""
        self._noticed.set()

    async def _rest(self, longest: timedelta) -> None:
        """Wait for more to record; only what other processes did has to be looked for."""
        if longest > GATHER:
            try:
                async with asyncio.timeout(longest.total_seconds()):
                    await self._noticed.wait()
            except TimeoutError:
                return
        await asyncio.sleep(GATHER.total_seconds())

    async def _retain(self) -> None:
        now_ms = self._clock.now_ms()
        if self._retention is not None and now_ms - self._retained_ms >= RETAIN_EVERY_MS:
            self._retained_ms = now_ms
            dropped = await self._messages.retain(self._retention)
            if dropped:
                log.info("old history dropped", parts=dropped)


class _Overtaken(Exception):
    """Another recorder was quicker."""


def _is_behind(position: Position | None, ends: ShardEnds) -> bool:
    return ends.last_seq > 0 and position != Position(ends.epoch, ends.last_seq)
