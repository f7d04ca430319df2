"""A group's copies of messages and the places they wait in.

Places: a lane or `again` (READY), the delay heap (DELAYED), behind the head of an ordering key (BLOCKED), LEASED, DEAD
(a letter) and GONE. A copy that leaves a lane or heap from the middle is only marked and skipped later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Final

from godwit.core.failures.failure import FailureKind, ProcessingError
from godwit.core.journal.shards import shard_name
from godwit.core.messages.envelope import Envelope
from godwit.core.names import AckId, GroupName, QueueName
from godwit.core.queues import GroupSpec, Lane

READY: Final = 0
DELAYED: Final = 1
BLOCKED: Final = 2
LEASED: Final = 3
DEAD: Final = 4
GONE: Final = 5

NEVER: Final = 1 << 62
_MARKED_BEFORE_SWEEP: Final = 1_000
_ENDED_BEFORE_SWEEP: Final = 64
STALE_PER_COPY: Final = 10
"""Entries of copies that ended, which are passed over, for each copy that may be buried in a portion."""


class MemoryCopy:
    """A message as one group has it."""

    __slots__ = (
        "attempt", "crashes", "dead_ms", "deadline_ms", "envelope", "errors", "expires_ms", "failures", "group",
        "kind", "lane", "lease_ms", "leased_ms", "letter", "newer", "place", "ready_ms", "returned", "seq", "token",
        "twin", "worker",
    )  # fmt: skip

    token: str
    worker: str
    deadline_ms: int
    lease_ms: int
    leased_ms: int
    kind: FailureKind
    dead_ms: int
    letter: int

    def __init__(
        self, group: MemoryGroup, envelope: Envelope, seq: int, lane: int, ready_ms: int, expires_ms: int
    ) -> None:
        self.group = group
        self.envelope = envelope
        self.seq = seq
        self.lane = lane
        self.ready_ms = ready_ms
        self.expires_ms = expires_ms
        self.attempt = self.failures = self.crashes = 0
        self.errors: tuple[ProcessingError, ...] = ()
        self.place = READY
        self.returned = False
        self.twin: MemoryCopy | None = None
        """An older copy with the same id, published again after the dedup window."""
        self.newer: MemoryCopy | None = None
        """The copy whose twin it is."""

    @property
    def ack_id(self) -> AckId:
        """What the holder of the present lease settles with."""
        return AckId(self.group.ack_prefix + self.token)


class MemoryGroup:
    """Competing consumers of a queue, and everything that waits for them."""

    def __init__(self, spec: GroupSpec, queue: QueueName, lanes: int, now_ms: int) -> None:
        self.spec = spec
        self.name = spec.name
        self.queue = queue
        self.ack_prefix = f"{shard_name(queue)}#{spec.name}#"
        self.lanes: list[deque[MemoryCopy]] = [deque() for _ in range(lanes)]
        self.again: list[list[tuple[int, MemoryCopy]]] = [[] for _ in range(lanes)]
        self.delayed: list[tuple[int, int, MemoryCopy]] = []
        self.expiring: list[tuple[int, int, MemoryCopy]] = []
        self.keys: dict[str, deque[MemoryCopy]] = {}
        self.leases: dict[int, dict[MemoryCopy, None]] = {}
        """Leased copies by the length of their lease: each is in the order of deadlines, since time moves forward."""
        self.unsorted: set[int] = set()
        """Lengths whose leases are not in that order: an outage moved a lease beyond those given after it."""
        self.due_hint_ms = NEVER
        """No lease is due before this; acked ones may have made it too early."""
        self.by_id: dict[str, MemoryCopy] = {}
        self.letters: dict[int, MemoryCopy] = {}
        self.ready = self.blocked = self.delayed_count = self.leased = 0
        self.bytes = self.leased_bytes = 0
        self.dropped = self.letter_seq = self.pulls = 0
        self.marked = 0
        self.looked_after_ms = now_ms
        self.outage_ms = 0
        self.unforgiven: deque[MemoryCopy] = deque()
        """Leases that the outage noticed at `outage_ms` has not been looked at for."""
        self.ordered_lane = Lane.MEDIUM if lanes > 1 else 0

    @property
    def depth(self) -> int:
        """Copies that still wait for their end."""
        return self.ready + self.blocked + self.delayed_count + self.leased

    def is_in(self, groups: Mapping[GroupName, MemoryGroup]) -> bool:
        """Say whether a queue still has this group, and no other of its name."""
        return groups.get(self.name) is self

    def admit(self, copy: MemoryCopy, now_ms: int) -> None:
        """Take in a new copy, at the place its time and key ask for."""
        envelope = copy.envelope
        self.bytes += envelope.size
        self._remember(copy)
        if copy.expires_ms:
            heappush(self.expiring, (copy.expires_ms, copy.seq, copy))
        if self.spec.message_ordering and envelope.ordering_key is not None:
            copy.lane = self.ordered_lane
            waiting = self.keys.get(envelope.ordering_key)
            if waiting is not None:
                waiting.append(copy)
                copy.place = BLOCKED
                self.blocked += 1
                return
            self.keys[envelope.ordering_key] = deque((copy,))
        self.wait(copy, now_ms)

    def wait(self, copy: MemoryCopy, now_ms: int) -> None:
        """Put a copy where it becomes deliverable: now, or when its time has come."""
        if copy.ready_ms > now_ms:
            copy.place = DELAYED
            self.delayed_count += 1
            heappush(self.delayed, (copy.ready_ms, copy.seq, copy))
            return
        copy.place = READY
        self.ready += 1
        if copy.returned:
            heappush(self.again[copy.lane], (copy.seq, copy))
        else:
            self.lanes[copy.lane].append(copy)

    def give_back(self, copy: MemoryCopy, ready_ms: int, now_ms: int) -> None:
        """Let a copy wait again whose lease was ended."""
        copy.ready_ms = ready_ms
        copy.returned = True
        if copy.expires_ms and copy.expires_ms <= now_ms:
            heappush(self.expiring, (copy.expires_ms, copy.seq, copy))  # its first entry may be gone
        self.wait(copy, now_ms)

    def lease_out(self, length_ms: int, deadline_ms: int) -> dict[MemoryCopy, None]:
        """Return the leases of this length, to which one with this deadline is added next."""
        leases = self.leases.setdefault(length_ms, {})
        if leases and next(reversed(leases)).deadline_ms > deadline_ms:
            self.unsorted.add(length_ms)
        return leases

    def sort_leases(self) -> None:
        """Bring the leases of every length into the order of their deadlines."""
        for length_ms in self.unsorted:
            if leases := self.leases.get(length_ms):
                self.leases[length_ms] = dict.fromkeys(sorted(leases, key=lambda copy: copy.deadline_ms))
        self.unsorted.clear()

    def unlease(self, copy: MemoryCopy) -> None:
        """Take a leased copy out of the leases; its next place is the caller's business."""
        same_length = self.leases[copy.lease_ms]
        del same_length[copy]
        if not same_length:
            del self.leases[copy.lease_ms]
        self.leased -= 1
        self.leased_bytes -= copy.envelope.size

    def withdraw(self, copy: MemoryCopy) -> None:
        """Take a waiting copy out of its place."""
        if copy.place == READY:
            self.ready -= 1
            self.marked += 1
        elif copy.place == DELAYED:
            self.delayed_count -= 1
            self.marked += 1
        else:
            self.blocked -= 1

    def end(self, copy: MemoryCopy, place: int, now_ms: int) -> None:
        """Count a copy out that is done, dead or cancelled, and release its ordering key."""
        was_blocked = copy.place == BLOCKED
        copy.place = place
        envelope = copy.envelope
        self.bytes -= envelope.size
        if copy.newer is None and copy.twin is None:
            del self.by_id[envelope.id]
        else:
            self._unlink(copy)
        if self.keys and not was_blocked:
            self._release(copy, now_ms)
        if self.marked > _MARKED_BEFORE_SWEEP:
            if not self.marked % _MARKED_BEFORE_SWEEP:
                self._drop_fronts()
            if self.marked > self.ready + self.delayed_count:
                self._sweep()
        if self.expiring:
            self._forget_expiries()

    def bury(self, copy: MemoryCopy, kind: FailureKind, now_ms: int) -> None:
        """Make a dead letter of a copy that is in no place any more."""
        self.end(copy, DEAD, now_ms)
        self.letter_seq += 1
        copy.kind, copy.dead_ms, copy.letter = kind, now_ms, self.letter_seq
        self.letters[self.letter_seq] = copy

    def _forget_expiries(self) -> None:
        """Let go of copies that ended before their expiry: each keeps a whole message alive."""
        depth = self.depth
        if not depth:
            self.expiring.clear()
        elif len(self.expiring) > 2 * depth + _ENDED_BEFORE_SWEEP:
            self.expiring = [entry for entry in self.expiring if entry[2].place < DEAD]
            heapify(self.expiring)

    def _release(self, head: MemoryCopy, now_ms: int) -> None:
        key = head.envelope.ordering_key
        waiting = self.keys.get(key) if key is not None else None
        if waiting is None or waiting[0] is not head:
            return
        waiting.popleft()
        while waiting and waiting[0].place != BLOCKED:
            waiting.popleft()
        if waiting:
            self.blocked -= 1
            self.wait(waiting[0], now_ms)
        else:
            del self.keys[key]  # type: ignore[arg-type]

    def _remember(self, copy: MemoryCopy) -> None:
        copy.twin = older = self.by_id.get(copy.envelope.id)
        if older is not None:
            older.newer = copy
        self.by_id[copy.envelope.id] = copy

    def _unlink(self, copy: MemoryCopy) -> None:
        newer, older = copy.newer, copy.twin
        if older is not None:
            older.newer = newer
        if newer is not None:
            newer.twin = older
        elif older is not None:
            self.by_id[copy.envelope.id] = older
        copy.newer = copy.twin = None

    def due_delays(self, now_ms: int, most: int) -> int:
        """Make ready what is due, `most` of it; return how many."""
        delayed = self.delayed
        due = 0
        while due < most and delayed and delayed[0][0] <= now_ms:
            _, _, copy = heappop(delayed)
            if copy.place != DELAYED:
                self.marked -= 1
                continue
            self.delayed_count -= 1
            due += 1
            self.wait(copy, now_ms)
        return due

    def expire(self, now_ms: int, most: int) -> list[MemoryCopy]:
        """Bury what waits past its expiry, `most` of it; return it."""
        expiring = self.expiring
        found: list[MemoryCopy] = []
        for _ in range(most * STALE_PER_COPY):
            if len(found) == most or not expiring or expiring[0][0] > now_ms:
                break
            _, _, copy = heappop(expiring)
            if copy.place <= BLOCKED:
                self.withdraw(copy)
                self.bury(copy, FailureKind.EXPIRED, now_ms)
                found.append(copy)
                expiring = self.expiring  # it may be made anew
        return found

    @property
    def next_expiry_ms(self) -> int:
        """When the next copy expires, or one that ended before would have."""
        return self.expiring[0][0] if self.expiring else NEVER

    def _drop_fronts(self) -> None:
        """Drop marked copies at the fronts of lanes: what expires is mostly there, and a sweep looks at all."""
        for lane in self.lanes:
            while lane and lane[0].place != READY:
                lane.popleft()
                self.marked -= 1

    def _sweep(self) -> None:
        """Drop marked copies from lanes and heaps, so that cancelled ones do not pile up."""
        for index, lane in enumerate(self.lanes):
            self.lanes[index] = deque([copy for copy in lane if copy.place == READY])  # twice as fast as a generator
            self.again[index] = [entry for entry in self.again[index] if entry[1].place == READY]
            heapify(self.again[index])
        self.delayed = [entry for entry in self.delayed if entry[2].place == DELAYED]
        heapify(self.delayed)
        self.marked = 0
