"""Looking after a group: what the broker does by itself as time passes."""

from __future__ import annotations

from typing import Final

from godwit.brokers.sqlite.layout import copies as places
from godwit.brokers.sqlite.layout.copies import BLOCKED, DELAYED, SELECT_WAITING, CopyRow
from godwit.brokers.sqlite.layout.leases import BLOCK_LEASES, Block, LeaseRow, blocks_of, unlease
from godwit.brokers.sqlite.layout.rows import GroupRow
from godwit.brokers.sqlite.layout.runs import ID, KEY, TYPE
from godwit.brokers.sqlite.layout.step import SqliteStep
from godwit.core.clock import milliseconds
from godwit.core.failures.failure import FailureKind
from godwit.core.journal.rows import JournalRow, ended_row, renewed_row, returned_row
from godwit.core.journal.vocabulary import Event

PORTION: Final = 200
"""Changes of each kind in one step: what others, and this process's event loop, wait for."""
MANY_LEASES: Final = 2_000
A_GAP_MS: Final = 1_000
SELECT_EXPIRY: Final = "SELECT min(expiry) FROM broker_waiting WHERE group_id = ? AND expiry IS NOT NULL"
BLOCKS: Final = PORTION // BLOCK_LEASES


def maintain_group(work: SqliteStep, group: GroupRow, now_ms: int) -> int:
    """Take back due leases, expire, release due delays, in this order, a portion of each; return how many changed."""
    changes = 0
    if group.leased:
        gap_ms = now_ms - group.looked_at
        if group.spec.forgive_outages and gap_ms > 0:
            changes += _forgive(work, group, gap_ms, now_ms)
        changes += _take_back(work, group, now_ms)
        group.looked_at = now_ms  # without a lease nothing depends on it, and an empty pull need not write
    if group.expiring:
        changes += _expire(work, group, now_ms)
    if group.delayed:
        changes += _due_delays(work, group, now_ms)
    return changes


def is_due(work: SqliteStep, group: GroupRow, now_ms: int) -> bool:
    """Say whether a further portion is left to do."""
    due_ms = next_due(work, group) if group.leased or group.expiring or group.delayed else None
    return due_ms is not None and due_ms <= now_ms


def has_expired(work: SqliteStep, group: GroupRow, now_ms: int) -> bool:
    """Say whether a copy that waits is past its expiry: no other may be delivered before it is buried."""
    if not group.expiring:
        return False
    (expiry,) = work.execute(SELECT_EXPIRY, (group.id,)).fetchone()
    return expiry is not None and expiry <= now_ms


def forgives_many(group: GroupRow, now_ms: int) -> bool:
    """Say whether an outage has just ended for so many leases that an event loop should not look at them all."""
    gap_ms = now_ms - group.looked_at
    return group.leased > MANY_LEASES and gap_ms > A_GAP_MS and group.spec.forgive_outages


def _forgive(work: SqliteStep, group: GroupRow, gap_ms: int, now_ms: int) -> int:
    """No worker could renew a lease in the gap, so those shorter than it end one length from now."""
    rows: list[JournalRow] = []
    for block in blocks_of(work, group, " AND shortest < ?", gap_ms):
        for lease in block.open.values():
            if lease.length < gap_ms and lease.until < now_ms + lease.length:
                lease.until = now_ms + lease.length
                rows.append(renewed_row(lease.message_id, lease.seq, block.token(lease), lease.until))
        block.changed = True
        block.save(work)
    if rows:
        rows.sort(key=lambda row: row[1])
        work.journal(group.queue, Event.LEASE_MOVED, group, None, rows)
    return len(rows)


def _take_back(work: SqliteStep, group: GroupRow, now_ms: int) -> int:
    due = _end_due(work, group, now_ms)
    if not due:
        return 0
    due.sort(key=lambda found: (found[1].until, found[1].seq))
    returned: dict[str, list[JournalRow]] = {}
    dead: dict[str, list[JournalRow]] = {}
    spec = group.spec
    for block, lease in due:
        unlease(group, lease)
        copy = lease.copy(group)
        copy.crashes += 1
        poison = spec.max_crashes is not None and copy.crashes >= spec.max_crashes
        if poison or exhausted(group, copy):
            kind = FailureKind.POISON if poison else FailureKind.TRANSIENT
            places.bury(work, group, copy, kind, now_ms)
            dead.setdefault(block.worker, []).append(end_row(block, lease, copy, now_ms, None, kind))
        else:
            delay_ms = milliseconds(spec.backoff.delay(attempt=copy.failures + copy.crashes)) if spec.backoff else 0
            places.give_back(work, group, copy, now_ms + delay_ms, now_ms)
            row = returned_row(end_row(block, lease, copy, now_ms, None, None), copy.ready_at)
            returned.setdefault(block.worker, []).append(row)
    for event, by_worker in ((Event.LEASE_EXPIRED, returned), (Event.DEAD_LETTERED, dead)):
        for worker, rows in by_worker.items():
            work.journal(group.queue, event, group, worker, rows)
    return len(due)


def _end_due(work: SqliteStep, group: GroupRow, now_ms: int) -> list[tuple[Block, LeaseRow]]:
    """End leases past their deadline and return them."""
    due: list[tuple[Block, LeaseRow]] = []
    for block in blocks_of(work, group, f" AND due <= ? ORDER BY due LIMIT {BLOCKS}", now_ms):
        past = [lease for lease in block.open.values() if lease.until <= now_ms]
        for lease in past:
            del block.open[lease.place]
            due.append((block, lease))
        block.changed = True
        block.save(work)
    return due


def _expire(work: SqliteStep, group: GroupRow, now_ms: int) -> int:
    rows: list[JournalRow] = []
    # One at a time: burying a head moves the next of its key, which may itself be past its time.
    nearest = f"{SELECT_WAITING} AND expiry <= ? ORDER BY expiry, seq LIMIT 1"
    while len(rows) < PORTION and (found := work.execute(nearest, (group.id, now_ms)).fetchone()) is not None:
        copy = CopyRow(found)
        message = work.runs.message(copy.run, copy.seq)
        places.withdraw(work, group, copy)
        places.bury(work, group, copy, FailureKind.EXPIRED, now_ms, blocked=copy.slot == BLOCKED)
        rows.append(ended_row(
            message[ID], copy.seq, None, copy.attempt, copy.failures, copy.crashes, None, message[TYPE], copy.lane,
            message[KEY], FailureKind.EXPIRED, None,
        ))  # fmt: skip
    if rows:
        work.journal(group.queue, Event.MESSAGE_EXPIRED, group, None, rows)
    return len(rows)


def _due_delays(work: SqliteStep, group: GroupRow, now_ms: int) -> int:
    due = work.execute(
        f"{SELECT_WAITING} AND slot = {DELAYED} AND ord <= ? ORDER BY ord, seq LIMIT {PORTION}", (group.id, now_ms)
    ).fetchall()
    for row in due:
        copy = CopyRow(row)
        places.withdraw(work, group, copy)
        places.wait(work, group, copy, now_ms)
    return len(due)


def exhausted(group: GroupRow, copy: CopyRow) -> bool:
    """Say whether the group gives a message up after this failure or crash."""
    limit = group.spec.max_delivery_attempts
    return limit is not None and copy.failures + copy.crashes >= limit


def end_row(
    block: Block,
    lease: LeaseRow,
    copy: CopyRow,
    now_ms: int,
    run_ms: int | None,
    kind: str | None,
    fingerprint: str | None = None,
) -> JournalRow:
    """Return the journal row of a lease's end other than an ack."""
    return ended_row(
        lease.message_id, lease.seq, block.token(lease), copy.attempt, copy.failures, copy.crashes,
        now_ms - block.delivered_at if run_ms is None else run_ms,
        lease.type, lease.lane, lease.key, kind, fingerprint,
    )  # fmt: skip


def next_due(work: SqliteStep, group: GroupRow) -> int | None:
    """Return when something may become ready by itself, or None."""
    times = []
    for counter, statement in (
        (group.leased, "SELECT min(due) FROM broker_leases WHERE group_id = ?"),
        (group.delayed, f"SELECT min(ord) FROM broker_waiting WHERE group_id = ? AND slot = {DELAYED}"),  # noqa: S608
        (group.expiring, SELECT_EXPIRY),
    ):
        if counter:
            (time,) = work.execute(statement, (group.id,)).fetchone()
            times.append(time)
    return min(times, default=None)
