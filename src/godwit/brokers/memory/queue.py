"""A queue in memory: its groups, its dedup window and the publish step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import Final

from godwit.brokers.contract import Receipt
from godwit.brokers.limits import Fill, fits, misfits
from godwit.brokers.memory.group import MemoryCopy, MemoryGroup
from godwit.brokers.memory.journal import MemoryShard
from godwit.core.clock import milliseconds
from godwit.core.journal.rows import JournalRow, arrival_row, dropped_row, duplicate_row
from godwit.core.journal.vocabulary import VERSIONED, Event
from godwit.core.messages.envelope import Envelope
from godwit.core.names import GroupName
from godwit.core.queues import LANE_OF_PRIORITY, QueueSpec

_DEDUP_BUCKET_MS: Final = 10_000


class MemoryQueue:
    """Groups and what they share."""

    def __init__(self, spec: QueueSpec, shard: MemoryShard, *, keeps_body: bool) -> None:
        self.spec = spec
        self.shard = shard
        self.keeps_body = keeps_body
        self.groups: dict[GroupName, MemoryGroup] = {}
        self.published = self.duplicates = 0
        self._dedup: dict[str, int] = {}
        self._dedup_buckets: dict[int, list[str]] = {}
        self._dedup_order: list[int] = []

    def accept(
        self, chunk: Sequence[Envelope], now_ms: int, *, moved: bool = False, app_version: str | None = None
    ) -> list[Receipt]:
        """Store one chunk for all its groups, or raise and change nothing.

        What is `moved` here from another queue was accepted before: it is not deduplicated, never dropped, and its own
        times no longer count.
        """
        fresh = list(chunk) if moved else self._fresh(chunk, now_ms)
        dropped = {group.name: self._misfits(group, fresh, now_ms, moved=moved) for group in self.groups.values()}
        if not moved:
            self._remember(fresh, now_ms)
        first_seq = self.shard.publish_seq + 1
        self.shard.publish_seq += len(fresh)
        self.published += len(fresh)
        ttl_ms = milliseconds(self.spec.ttl) if self.spec.ttl is not None and not moved else 0
        for index, group in enumerate(self.groups.values()):
            self._copy(group, index, fresh, first_seq, dropped[group.name], ttl_ms, now_ms, app_version)
        if len(fresh) == len(chunk):
            return [Receipt(envelope.id, True) for envelope in chunk]  # noqa: FBT003
        return self._answer_duplicates(chunk, fresh)

    def _answer_duplicates(self, chunk: Sequence[Envelope], fresh: list[Envelope]) -> list[Receipt]:
        accepted = set(map(id, fresh))
        receipts = []
        for envelope in chunk:
            receipts.append(Receipt(envelope.id, id(envelope) in accepted))
            accepted.discard(id(envelope))  # the same object twice in one chunk is a repetition too
        repetitions = [duplicate_row(receipt.id) for receipt in receipts if not receipt.fresh]
        self.duplicates += len(repetitions)
        self.shard.append(Event.DUPLICATE, self.spec.name, None, None, None, repetitions)
        return receipts

    def _fresh(self, chunk: Sequence[Envelope], now_ms: int) -> list[Envelope]:
        """Return those whose id was not accepted inside the window."""
        if not self.spec.dedup_window:
            return list(chunk)
        self.forget(now_ms)
        known = self._dedup
        seen: set[str] = set()
        fresh = []
        for envelope in chunk:
            if (envelope.id in known and known[envelope.id] > now_ms) or envelope.id in seen:
                continue
            seen.add(envelope.id)
            fresh.append(envelope)
        return fresh

    def _remember(self, fresh: Iterable[Envelope], now_ms: int) -> None:
        window_ms = milliseconds(self.spec.dedup_window)
        if not window_ms:
            return
        known = self._dedup
        now_until = now_ms + window_ms
        now_bucket = self._bucket(now_until)
        for envelope in fresh:
            if envelope.deliver_at_ms is None or envelope.deliver_at_ms <= now_ms:
                known[envelope.id] = now_until
                now_bucket.append(envelope.id)
            else:
                known[envelope.id] = until = envelope.deliver_at_ms + window_ms
                self._bucket(until).append(envelope.id)

    def _bucket(self, until_ms: int) -> list[str]:
        number = until_ms // _DEDUP_BUCKET_MS
        bucket = self._dedup_buckets.get(number)
        if bucket is None:
            bucket = self._dedup_buckets[number] = []
            heappush(self._dedup_order, number)
        return bucket

    def forget(self, now_ms: int) -> None:
        """Drop dedup entries past their window."""
        while self._dedup_order and (self._dedup_order[0] + 1) * _DEDUP_BUCKET_MS <= now_ms:
            for name in self._dedup_buckets.pop(heappop(self._dedup_order)):
                if self._dedup.get(name, now_ms + 1) <= now_ms:
                    del self._dedup[name]

    def _misfits(self, group: MemoryGroup, fresh: list[Envelope], now_ms: int, *, moved: bool) -> frozenset[int] | None:
        """Return the indexes of what the group must drop (None: nothing); raise when it is full and refuses."""
        fill = Fill(group.depth, group.bytes, group.delayed_count)
        if fits(self.spec, fill, len(fresh), sum(map(_size, fresh)), delayed=fill.delayed):
            return None
        return frozenset(misfits(self.spec, group.spec, fill, fresh, now_ms, moved=moved)) or None

    def _copy(
        self,
        group: MemoryGroup,
        index: int,
        fresh: list[Envelope],
        first_seq: int,
        dropped: frozenset[int] | None,
        ttl_ms: int,
        now_ms: int,
        app_version: str | None,
    ) -> None:
        """Give one group its copies and journal them."""
        lanes = len(group.lanes) > 1
        copies = len(self.groups)
        rows: list[JournalRow] = []
        later_rows: list[JournalRow] = []
        dropped_rows: list[JournalRow] = []
        seq = first_seq - 1
        for envelope in fresh:
            seq += 1
            addressed = envelope.group is not None
            if addressed and envelope.group != group.name:
                continue
            if dropped is not None and seq - first_seq in dropped:
                dropped_rows.append(dropped_row(envelope.id, seq, envelope.size))
                continue
            deliver_ms = envelope.deliver_at_ms
            ready_ms = now_ms if deliver_ms is None or deliver_ms <= now_ms else deliver_ms
            lane = LANE_OF_PRIORITY[envelope.priority] if lanes else 0
            copy = MemoryCopy(group, envelope, seq, lane, ready_ms, envelope.expiry_ms(ttl_ms))
            group.admit(copy, now_ms)
            row = arrival_row(
                envelope.id, seq, 0 if addressed else index, 1 if addressed else copies, envelope.type,
                envelope.priority, copy.lane, envelope.ordering_key, ready_ms, deliver_ms, copy.expires_ms or None,
                envelope.size, envelope.schedule_id, envelope.campaign, envelope.replay_of, self.body(envelope),
                envelope.correlation_id, envelope.journal_attributes,
            )  # fmt: skip
            (rows if ready_ms == now_ms else later_rows).append(row)
        group.dropped += len(dropped_rows)
        for event, found in ((Event.ENQUEUED, rows), (Event.SCHEDULED, later_rows), (Event.DROPPED, dropped_rows)):
            if found:
                version = app_version if event in VERSIONED else None
                self.shard.append(event, self.spec.name, group.name, None, group.depth, found, app_version=version)

    def body(self, envelope: Envelope) -> bytes | None:
        """Return what the journal keeps of the message itself."""
        return envelope.body if self.keeps_body else None


_size = attrgetter("size")
