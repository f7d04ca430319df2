"""The recorder: carries the journal into the state tables, with its position in the same transaction.

Any number may run. One that finds its position moved by another stands by, and goes on when nobody else does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec

from godwit.brokers.contract import Journal, ShardEnds
from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.coalescing import Piece, batches
from godwit.core.errors import BrokerError, JournalLost, StoreError
from godwit.core.faults import reach
from godwit.core.journal import Position, decode_chunk, numbers_of, shard_parts
from godwit.core.logs import get_logger
from godwit.core.recording import Address, Batch
from godwit.core.resyncing import forgotten, resynced
from godwit.store.contract import Messages
from godwit.telemetry.metrics import QueueMetricsCollector

READER: Final = "recorder"
GATHER: Final = timedelta(milliseconds=100)
"""How long transitions are gathered into one transaction."""
LONGEST_IDLE: Final = timedelta(milliseconds=800)
"""How long what other processes did may stay unseen while nothing happens in this one."""
STANDBY: Final = timedelta(seconds=5)
PATIENCE: Final = 80
"""How many times as long as it worked a recorder rests that cannot keep up anyway."""
LONGEST_REST: Final = timedelta(seconds=1)
HOPELESS: Final = 2
"""How many times as fast as it is recorded the journal grows then; below, resting half of the time is enough."""
BEHIND_MOST: Final = 500_000
"""Rows; beyond, those who fill the journal have to wait for the recorder: it must not be trimmed unread."""
COMMIT_EVERY_MS: Final = 1_000
RETAIN_EVERY_MS: Final = 600_000

log = get_logger(__name__)


class RecorderLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far the recorder is behind: rows seen and not yet recorded, and how long ago everything was recorded."""

    rows: int
    seconds: float


class Pace:
    """How a recorder shares the machine with those whose work it records.

    While the journal grows faster than anybody could record it, recording yields to the work: a backlog is worked off
    at nearly the speed of the bare broker and recorded when it is done. What is not recorded yet is looked up in the
    journal (`runtime/status.py`), so that nothing is seen later for it.
    """

    def __init__(self) -> None:
        self._rows = self._looked_ms = 0
        self._growth: float | None = None
        """Rows in a millisecond, between the last two looks; None before the second."""

    def looked(self, rows: int, now_ms: int) -> None:
        """Take note of how many rows were ever written."""
        if self._looked_ms and now_ms > self._looked_ms:
            self._growth = max(0, rows - self._rows) / (now_ms - self._looked_ms)
        self._rows, self._looked_ms = rows, now_ms

    def rest(self, recorded: int, now_ms: int, behind: int) -> timedelta:
        """Return how long to rest after a tick that left rows unrecorded."""
        if self._growth is None:
            return GATHER if behind else timedelta(0)  # whoever begins to work meanwhile shall not be in the way
        took_ms = max(1, now_ms - self._looked_ms)
        grown = self._growth * took_ms
        if behind > BEHIND_MOST or grown < recorded:
            return timedelta(0)  # it keeps up, be it with all it has: resting would lose what it can hold
        patience = PATIENCE if grown >= HOPELESS * recorded else 1
        return min(patience * timedelta(milliseconds=took_ms), LONGEST_REST)


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
        self._positions: dict[str, Position] | None = None
        self._uncommitted: dict[str, Position] = {}
        self._committed_ms = 0
        self._retained_ms = 0
        self._caught_up_ms: int | None = None
        self._noticed = asyncio.Event()
        self._pace = Pace()
        self.recorded = 0
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
        self._pace.looked(sum(ends.last_seq for ends in shards.values()), looked_ms)
        pieces = await self._read(shards)
        recorded = 0
        self.overtaken = False
        for batch in batches(pieces):
            reach("recorder.read")
            if not await self._messages.record(batch):
                self.overtaken = True
                self._positions = None
                break
            recorded += batch.rows
            moved = {shard: step.after for shard, step in batch.steps.items()}
            self._positions |= moved
            self._uncommitted |= moved
        self.recorded += recorded
        await self._tell_broker()
        self._measure(shards, looked_ms, recorded)
        return recorded

    async def _read(self, shards: Mapping[str, ShardEnds]) -> list[Piece]:
        """Read every shard that has grown, a fair share of the batch from each."""
        positions = self._positions or {}
        grown = {shard: ends for shard, ends in shards.items() if _is_behind(positions.get(shard), ends)}
        share = max(1, self._batch_rows // max(1, len(grown)))
        pieces: list[Piece] = []
        for shard, ends in grown.items():
            before = positions.get(shard)
            try:
                chunks = await self._chunks(shard, before, ends, share)
            except JournalLost as lost:
                await self._start_over(shard, before, ends, lost)
            else:
                pieces.append((shard, before, map(decode_chunk, chunks)))
        return pieces

    async def _chunks(self, shard: str, before: Position | None, ends: ShardEnds, limit: int) -> list[bytes]:
        if before is None and ends.first_seq > 1:
            raise JournalLost(shard, "its beginning", f"rows {ends.first_seq:,} to {ends.last_seq:,}")
        return await self._journal.read(shard, before, limit=limit)

    async def _start_over(self, shard: str, before: Position | None, ends: ShardEnds, lost: JournalLost) -> None:
        """Take a list of what the broker holds now, where the journal no longer tells how it came about."""
        log.warning("journal lost before it was recorded", shard=shard, held=lost.held)
        if before is None or before.epoch != ends.epoch:
            known = await self._open_copies(shard)
            if not await self._start(forgotten(shard, before, ends.epoch, known, self._clock.now_ms())):
                return
            before = Position(ends.epoch, 0)
        if ends.first_seq > before.seq + 1:
            queue, partition = shard_parts(shard) or (shard, 0)
            snapshot = await self._journal.snapshot(shard if partition else queue)
            known = await self._open_copies(shard)
            now_ms = self._clock.now_ms()
            await self._start(resynced(shard, before, snapshot.position, snapshot.copies, known, now_ms))
        if self._metrics is not None:
            self._metrics.recorder_lost()

    async def _open_copies(self, shard: str) -> list[tuple[Address, str]]:
        """Return the copies of a shard that the tables have as open."""
        numbers = numbers_of(shard)
        known = await self._messages.open_copies(shard.rpartition("#")[0])
        return [(address, message_id) for address, message_id in known if address[2] in numbers]

    async def _start(self, batch: Batch) -> bool:
        if not await self._messages.record(batch):
            return False
        for shard, step in batch.steps.items():
            self._uncommitted[shard] = step.after
            if self._positions is not None:
                self._positions[shard] = step.after
        return True

    async def _tell_broker(self) -> None:
        """Let the broker know, now and then, what it may trim."""
        now_ms = self._clock.now_ms()
        if self._uncommitted and now_ms - self._committed_ms >= COMMIT_EVERY_MS:
            self._committed_ms = now_ms
            done, self._uncommitted = self._uncommitted, {}
            for shard, position in done.items():
                try:
                    await self._journal.commit(READER, shard, position)
                except JournalLost:
                    log.warning("journal replaced while it was recorded", shard=shard)

    def _measure(self, shards: Mapping[str, ShardEnds], looked_ms: int, recorded: int) -> None:
        """Say how old the tables are: as old as the last look at the journal of which everything is recorded."""
        positions = self._positions or {}
        rows = sum(_rows_behind(positions.get(shard), ends) for shard, ends in shards.items())
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
            missing = any(end.last_seq and _rows_behind(positions.get(shard), end) for shard, end in ends.items())
            if not missing or (positions == before and not self.overtaken):
                return
            before = dict(positions)

    # The loop

    async def run(self) -> None:
        """Record until cancelled; an outage of broker or store is waited out."""
        idle = GATHER
        while True:
            self._noticed.clear()
            try:
                recorded = await self.tick()
                await self._retain()
            except (BrokerError, StoreError) as error:
                log.warning("recorder waits", error=str(error))
                self._positions = None
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


def _is_behind(position: Position | None, ends: ShardEnds) -> bool:
    return ends.last_seq > 0 and position != Position(ends.epoch, ends.last_seq)


def _rows_behind(position: Position | None, ends: ShardEnds) -> int:
    if position is None or position.epoch != ends.epoch:
        return max(0, ends.last_seq - ends.first_seq + 1)
    return max(0, ends.last_seq - position.seq)
