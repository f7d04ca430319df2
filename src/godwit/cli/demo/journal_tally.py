"""The journal, read along: what happened so far, and who holds what at this moment."""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import median
from typing import Any

from godwit.brokers.contract import Journal
from godwit.cli.demo.workload import QueueGroup
from godwit.core.journal import Event, Position, decode_chunk, rows_of
from godwit.core.names import GroupName, QueueName
from godwit.core.projection import Address, Projection
from godwit.core.queues import Lane

_ENDS_A_LEASE = frozenset(
    {Event.ACKED, Event.NACKED, Event.LEASE_EXPIRED, Event.HANDED_BACK, Event.DEAD_LETTERED, Event.MESSAGE_EXPIRED}
)


class JournalTally:
    """Counts events by place, keeps who leased what, and folds the live state."""

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
        """Read on from where the last call ended, to the present end."""
        for shard in await journal.shards():
            while chunks := await journal.read(shard, self._positions.get(shard), limit=5_000):
                for chunk in map(decode_chunk, chunks):
                    for row in rows_of(chunk, shard):
                        self._apply(row)
                    self._positions[shard] = Position(chunk.epoch, chunk.last_seq)

    def total(self, event: Event) -> int:
        """Return how often something happened anywhere."""
        return sum(counts[event] for counts in self.counts.values())

    def held_by(self, worker: str) -> dict[Address, str]:
        """Return the copies a worker has leased, with their message ids."""
        return {address: name for address, (holder, name) in self.leases.items() if holder == worker}

    def median_waits(self, queue: str) -> dict[str, float]:
        """Return the seconds that half of the messages of each lane waited less than, the highest lane first."""
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
        place, event = QueueGroup(QueueName(row["queue"]), GroupName(row["group"])), row["event"]
        self.counts[place][event] += 1
        match event:
            case Event.ENQUEUED | Event.SCHEDULED:
                self.arrived[place].add(row["message_id"])
            case Event.DELIVERED:
                self._delivered(place, row)
            case Event.ACKED:
                self.acked[place].add(row["message_id"])
            case Event.LEASE_EXPIRED:
                self.ran_out[place].add(row["message_id"])
        if event in _ENDS_A_LEASE:
            self.leases.pop((*place, row["publish_seq"]), None)

    def _delivered(self, place: QueueGroup, row: dict[str, Any]) -> None:
        self.leases[(*place, row["publish_seq"])] = (row["worker"], row["message_id"])
        if row["attempt"] > 1:
            return
        self.waits_ms[place.queue, row["lane"]].append(row["wait_ms"])
        if row["ordering_key"] is not None:
            key = (place, row["ordering_key"])
            self.disorder[place] += row["publish_seq"] < self._newest.get(key, 0)
            self._newest[key] = row["publish_seq"]
