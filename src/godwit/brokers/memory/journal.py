"""The journal of one queue in memory: a row of encoded chunks."""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from godwit.brokers.contract import ShardEnds
from godwit.core.errors import JournalLost
from godwit.core.journal.chunks import encode_chunk
from godwit.core.journal.queue_time import ClockLag, advanced
from godwit.core.journal.shards import Position
from godwit.core.journal.vocabulary import Event, Row
from godwit.core.queues import QueueSpec

TRIMMED_TOGETHER: Final = 5_000


class StoredChunk(NamedTuple):
    """An encoded chunk and what trimming and reading need to know of it."""

    first_seq: int
    last_seq: int
    at_ms: int
    data: bytes


class MemoryShard:
    """Rows `first_seq` to `seq` of one queue's journal, and the counters that outlive the queue."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = secrets.token_hex(8)
        self.seq = 0
        self.publish_seq = 0
        self.letter_seqs: dict[str, int] = {}
        """How many dead letters removed groups had, by name: their ids are not used again."""
        self.at_ms = 0
        self.lag: ClockLag | None = None
        """Where the clock fell behind `at_ms`, when it has."""
        self.size = 0
        self.dropped = 0
        self.chunks: list[StoredChunk] = []
        self.start = 0
        """Chunks before this index are dropped; they leave the list when they are half of it."""
        self.positions: dict[str, Position] = {}
        """How far each reader has got."""

    def tick(self, clock_ms: int) -> int:
        """Return the time of a step; it never goes back, and goes on when the clock went back."""
        self.at_ms, self.lag = advanced(self.at_ms, clock_ms, self.lag)
        return self.at_ms

    def append(
        self,
        event: Event,
        queue: str,
        group: str | None,
        worker: str | None,
        depth: int | None,
        rows: Sequence[Row],
        *,
        actor: str | None = None,
        app_version: str | None = None,
    ) -> None:
        """Write one chunk at the shard's present time."""
        first = self.seq + 1
        data = encode_chunk(self.epoch, first, self.at_ms, event, queue, group, worker, depth, rows, actor, app_version)
        self.seq += len(rows)
        self.size += len(data)
        self.chunks.append(StoredChunk(first, self.seq, self.at_ms, data))

    @property
    def first_seq(self) -> int:
        """The oldest row held, one above `seq` when there is none."""
        return self.chunks[self.start].first_seq if self.start < len(self.chunks) else self.seq + 1

    def ends(self) -> ShardEnds:
        """Say what is held."""
        return ShardEnds(
            epoch=self.epoch, first_seq=self.first_seq, last_seq=self.seq, bytes=self.size, dropped=self.dropped
        )

    def read(self, after: Position | None, limit: int) -> list[bytes]:
        """Return chunks with rows beyond `after`, up to `limit` rows but at least one chunk."""
        seen = self.first_seq - 1 if after is None else self._known(after)
        found: list[bytes] = []
        rows = 0
        for index in range(bisect_right(self.chunks, seen, lo=self.start, key=_last_seq), len(self.chunks)):
            chunk = self.chunks[index]
            rows += chunk.last_seq - max(seen, chunk.first_seq - 1)
            if found and rows > limit:
                break
            found.append(chunk.data)
        return found

    def _known(self, after: Position) -> int:
        if after.epoch != self.epoch or not self.first_seq - 1 <= after.seq <= self.seq:
            asked = f"what follows row {after.seq:,} of epoch {after.epoch}"
            raise JournalLost(self.name, asked, f"rows {self.first_seq:,} to {self.seq:,} of epoch {self.epoch}")
        return after.seq

    def trim(self, spec: QueueSpec, now_ms: int) -> int:
        """Drop chunks that are too old and read by all, or more than the size limit allows; return rows dropped.

        At most `TRIMMED_TOGETHER` chunks: call it until it drops nothing.
        """
        keep_from_ms = now_ms - spec.journal_keep.total_seconds() * 1000
        read_by_all = min((position.seq for position in self.positions.values()), default=self.seq)
        dropped = 0
        for _ in range(TRIMMED_TOGETHER):
            if self.start == len(self.chunks):
                break
            oldest = self.chunks[self.start]
            too_big = self.size > spec.journal_max_bytes
            if not too_big and (oldest.at_ms >= keep_from_ms or oldest.last_seq > read_by_all):
                break
            self.start += 1
            self.size -= len(oldest.data)
            dropped += oldest.last_seq - oldest.first_seq + 1
            if oldest.last_seq > read_by_all:
                self.dropped += oldest.last_seq - max(read_by_all, oldest.first_seq - 1)
        if self.start * 2 > len(self.chunks):
            del self.chunks[: self.start]
            self.start = 0
        return dropped


def _last_seq(chunk: StoredChunk) -> int:
    return chunk.last_seq
