"""A tally of the journal: counts of events, and the leases of each worker."""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import median
from typing import Any

from godwit.brokers.contract import Journal
from godwit.cli.demo.workload import QueueGroup
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.journal.lifecycle import DELIVERY_ENDS
from godwit.core.journal.projection import Address, Projection
from godwit.core.journal.shards import Position
from godwit.core.journal.vocabulary import Event
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import Lane


class JournalTally:
    """Counts events by group, keeps the holder of every lease, and projects the live state."""

    def __init__(self) -> None:
        self.counts: defaultdict[QueueGroup, Counter[Event]] = defaultdict(Counter)
        self.arrived: defaultdict[QueueGroup, set[str]] = defaultdict(set)
        self.acked: defaultdict[QueueGroup, set[str]] = defaultdict(set)
        self.ran_out: defaultdict[QueueGroup, set[str]] = defaultdict(set)
        self.leases: dict[Address, tuple[str, str]] = {}
        self.waits_ms: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        self.disorder: Counter[QueueGroup] = Counter()
        self.projection = Projection()
        self._newest: dict[tuple[QueueGroup, str], int] = {}
        self._positions: dict[str, Position] = {}

    async def follow(self, journal: Journal) -> None:
        """Read from the end of the last call to the journal's present end."""
        for shard in await journal.shards():
            while chunks := await journal.read(shard, self._positions.get(shard), limit=5_000):
                for chunk in map(decode_chunk, chunks):
                    for row in rows_of(chunk, shard):
                        self._apply(row)
                    self._positions[shard] = Position(chunk.epoch, chunk.last_seq)

    def total(self, event: Event) -> int:
        """Return how often an event happened in all groups."""
        return sum(counts[event] for counts in self.counts.values())

    def held_by(self, worker: str) -> dict[Address, str]:
        """Return the copies a worker has leased, with their message ids."""
        return {address: name for address, (holder, name) in self.leases.items() if holder == worker}

    def median_waits(self, queue: str) -> dict[str, float]:
        """Return the median wait in seconds of each lane, the highest lane first."""
        return {
            lane.name.lower(): median(self.waits_ms[queue, lane]) / 1000
            for lane in reversed(Lane)
            if self.waits_ms[queue, lane]
        }

    def _apply(self, row: dict[str, Any]) -> None:
        seen = self._positions.get(row["shard"])
        if seen is not None and row["seq"] <= seen.seq:
            return  # a chunk may begin before the position asked for
        self.projection.apply(row)
        if row["group"] is None:
            return
        group, event = QueueGroup(QueueName(row["queue"]), GroupName(row["group"])), row["event"]
        self.counts[group][event] += 1
        match event:
            case Event.ENQUEUED | Event.SCHEDULED:
                self.arrived[group].add(row["message_id"])
            case Event.DELIVERED:
                self._delivered(group, row)
            case Event.ACKED:
                self.acked[group].add(row["message_id"])
            case Event.LEASE_EXPIRED:
                self.ran_out[group].add(row["message_id"])
        if event in DELIVERY_ENDS:
            self.leases.pop((*group, row["publish_seq"]), None)

    def _delivered(self, group: QueueGroup, row: dict[str, Any]) -> None:
        self.leases[(*group, row["publish_seq"])] = (row["worker"], row["message_id"])
        if row["attempt"] > 1:
            return
        self.waits_ms[group.queue, row["lane"]].append(row["wait_ms"])
        if row["ordering_key"] is not None:
            key = (group, row["ordering_key"])
            self.disorder[group] += row["publish_seq"] < self._newest.get(key, 0)
            self._newest[key] = row["publish_seq"]
