"""Looking after a group: what the broker does by itself as time passes."""

from __future__ import annotations

from itertools import islice
from typing import Final

from godwit.brokers.memory.group import LEASED, NEVER, MemoryCopy, MemoryGroup
from godwit.brokers.memory.journal import MemoryShard
from godwit.core.clock import milliseconds
from godwit.core.failures.failure import FailureKind
from godwit.core.journal.rows import JournalRow, ended_row, renewed_row, returned_row
from godwit.core.journal.vocabulary import Event
from godwit.core.names import AckId

PORTION: Final = 500
"""Changes of each kind in one call: what an event loop is held for by it."""


def maintain_group(
    group: MemoryGroup,
    shard: MemoryShard,
    held: dict[AckId, MemoryCopy],
    now_ms: int,
    lapsed: list[AckId] | None = None,
) -> int:
    """Take back due leases, expire, release due delays, in this order, a portion of each; return how many changed.

    The ack ids of leases taken back are added to `lapsed`.
    """
    changes = 0
    if group.leased:
        changes += _forgive(group, shard, now_ms)
        if not group.unforgiven and now_ms >= group.due_hint_ms:
            changes += _take_back(group, shard, held, now_ms, [] if lapsed is None else lapsed)
    else:
        group.unforgiven.clear()
    group.looked_after_ms = now_ms
    if group.next_expiry_ms <= now_ms:
        changes += _expire(group, shard, now_ms)
    if group.delayed and group.delayed[0][0] <= now_ms:
        changes += group.due_delays(now_ms, PORTION)
    return changes


def is_due(group: MemoryGroup, now_ms: int) -> bool:
    """Say whether a further portion is left to do."""
    if group.leased and (group.unforgiven or group.due_hint_ms <= now_ms):
        return True
    return group.next_expiry_ms <= now_ms or bool(group.delayed and group.delayed[0][0] <= now_ms)


def _forgive(group: MemoryGroup, shard: MemoryShard, now_ms: int) -> int:
    """No worker could renew a lease in an outage, so those shorter than it end one length from then."""
    gap_ms = now_ms - group.looked_after_ms
    if group.spec.forgive_outages and gap_ms > min(group.leases):
        group.outage_ms = now_ms
        group.unforgiven.clear()
        for length_ms, copies in group.leases.items():
            if length_ms < gap_ms:
                group.unforgiven.extend(copies)
    rows: list[JournalRow] = []
    for _ in range(min(PORTION, len(group.unforgiven))):
        copy = group.unforgiven.popleft()
        if copy.place == LEASED and copy.deadline_ms < group.outage_ms + copy.lease_ms:
            copy.deadline_ms = group.outage_ms + copy.lease_ms
            rows.append(renewed_row(copy.envelope.id, copy.seq, copy.token, copy.deadline_ms))
    if rows:
        rows.sort(key=lambda row: row[1])
        shard.append(Event.LEASE_MOVED, group.queue, group.name, None, group.depth, rows)
    return len(rows)


def _take_due(group: MemoryGroup, now_ms: int) -> list[MemoryCopy]:
    """Return leases past their deadline, oldest first, and note when the next one is due."""
    due: list[MemoryCopy] = []
    hint_ms = NEVER
    group.sort_leases()
    for copies in group.leases.values():
        for copy in islice(copies, PORTION + 1):
            if copy.deadline_ms > now_ms:
                hint_ms = min(hint_ms, copy.deadline_ms)
                break
            due.append(copy)
    due.sort(key=lambda copy: (copy.deadline_ms, copy.seq))
    group.due_hint_ms = hint_ms if len(due) <= PORTION else now_ms
    return due[:PORTION]


def _take_back(
    group: MemoryGroup, shard: MemoryShard, held: dict[AckId, MemoryCopy], now_ms: int, lapsed: list[AckId]
) -> int:
    due = _take_due(group, now_ms)
    returned: dict[str, list[JournalRow]] = {}
    dead: dict[str, list[JournalRow]] = {}
    spec = group.spec
    for copy in due:
        ack_id = copy.ack_id
        lapsed.append(ack_id)
        del held[ack_id]
        group.unlease(copy)
        copy.crashes += 1
        poison = spec.max_crashes is not None and copy.crashes >= spec.max_crashes
        if poison or exhausted(copy):
            kind = FailureKind.POISON if poison else FailureKind.TRANSIENT
            group.bury(copy, kind, now_ms)
            dead.setdefault(copy.worker, []).append(end_row(copy, now_ms, None, kind))
        else:
            delay_ms = milliseconds(spec.backoff.delay(attempt=copy.failures + copy.crashes)) if spec.backoff else 0
            group.give_back(copy, now_ms + delay_ms, now_ms)
            returned.setdefault(copy.worker, []).append(returned_row(end_row(copy, now_ms, None, None), copy.ready_ms))
    for event, by_worker in ((Event.LEASE_EXPIRED, returned), (Event.DEAD_LETTERED, dead)):
        for worker, rows in by_worker.items():
            shard.append(event, group.queue, group.name, worker, group.depth, rows)
    return len(due)


def _expire(group: MemoryGroup, shard: MemoryShard, now_ms: int) -> int:
    expired = group.expire(now_ms, PORTION)
    if expired:
        rows = [waiting_row(copy, FailureKind.EXPIRED) for copy in expired]
        shard.append(Event.MESSAGE_EXPIRED, group.queue, group.name, None, group.depth, rows)
    return len(expired)


def exhausted(copy: MemoryCopy) -> bool:
    """Say whether the group gives a message up after this failure or crash."""
    limit = copy.group.spec.max_delivery_attempts
    return limit is not None and copy.failures + copy.crashes >= limit


def end_row(
    copy: MemoryCopy, now_ms: int, run_ms: int | None, kind: str | None, fingerprint: str | None = None
) -> JournalRow:
    """Return the journal row of a lease's end other than an ack."""
    envelope = copy.envelope
    return ended_row(
        envelope.id, copy.seq, copy.token, copy.attempt, copy.failures, copy.crashes,
        now_ms - copy.leased_ms if run_ms is None else run_ms,
        envelope.type, copy.lane, envelope.ordering_key, kind, fingerprint,
    )  # fmt: skip


def waiting_row(copy: MemoryCopy, kind: FailureKind) -> JournalRow:
    """Return the journal row of the end of a copy that was not leased."""
    envelope = copy.envelope
    return ended_row(
        envelope.id, copy.seq, None, copy.attempt, copy.failures, copy.crashes,
        None, envelope.type, copy.lane, envelope.ordering_key, kind, None,
    )  # fmt: skip
