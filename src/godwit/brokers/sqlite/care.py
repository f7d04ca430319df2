"""Looking after a group: what the broker does by itself as time passes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from godwit.brokers.sqlite import copies as places
from godwit.brokers.sqlite.copies import BLOCKED, DELAYED, SELECT_WAITING, Copy
from godwit.brokers.sqlite.leases import Lease, Pull, close_pulls, leases_of_pull, unlease
from godwit.brokers.sqlite.rows import Group
from godwit.brokers.sqlite.runs import ID, KEY, TYPE
from godwit.brokers.sqlite.work import Work
from godwit.core.clock import milliseconds
from godwit.core.failure import FailureKind
from godwit.core.journal import Event


def look_after(work: Work, group: Group, now_ms: int) -> int:
    """Take back due leases, expire, release due delays, in this order; return the number of changes."""
    changes = 0
    if group.leased:
        gap_ms = now_ms - group.looked_at
        if group.spec.forgive_outages and gap_ms > 0:
            changes += _forgive(work, group, gap_ms)
        changes += _take_back(work, group, now_ms)
        group.looked_at = now_ms  # without a lease nothing depends on it, and an empty pull need not write
    if group.expiring:
        changes += _expire(work, group, now_ms)
    if group.delayed:
        changes += _due_delays(work, group, now_ms)
    return changes


def _pulls(work: Work, group: Group, condition: str, value: int) -> list[tuple[int, Pull]]:
    rows = work.execute(
        f"SELECT id, group_id, mark, worker, delivered_at FROM broker_pulls WHERE group_id = ? AND {condition}",  # noqa: S608
        (group.id, value),
    ).fetchall()
    return [(row[0], Pull(row[1:])) for row in rows]


def _forgive(work: Work, group: Group, gap_ms: int) -> int:
    """Nobody could take back or renew leases in the gap, so those shorter than it get one more length."""
    rows: list[tuple[Any, ...]] = []
    for pull_id, pull in _pulls(work, group, "shortest < ?", gap_ms):
        moved = [lease for lease in leases_of_pull(work, pull_id, pull) if lease.length < gap_ms]
        for lease in moved:
            lease.until += lease.length
            rows.append((lease.message_id, lease.seq, lease.token, lease.until))
        work.executemany("UPDATE broker_leases SET until = ? WHERE id = ?", [(lease.until, lease.id) for lease in moved])
    if rows:
        rows.sort(key=lambda row: row[1])
        work.journal(group.queue, Event.LEASE_MOVED, group, None, rows)
    return len(rows)


def _take_back(work: Work, group: Group, now_ms: int) -> int:
    due = _end_due(work, group, now_ms)
    if not due:
        return 0
    due.sort(key=lambda lease: (lease.until, lease.seq))
    returned, dead = [], []
    spec = group.spec
    for lease in due:
        unlease(group, lease)
        copy = lease.copy(group)
        copy.crashes += 1
        poison = spec.max_crashes is not None and copy.crashes >= spec.max_crashes
        if poison or exhausted(group, copy):
            kind = FailureKind.POISON if poison else FailureKind.TRANSIENT
            places.bury(work, group, copy, kind, now_ms)
            dead.append(end_row(lease, copy, now_ms, None, kind))
        else:
            delay_ms = milliseconds(spec.backoff.delay(attempt=copy.attempt)) if spec.backoff else 0
            places.give_back(work, group, copy, now_ms + delay_ms, now_ms)
            returned.append((*end_row(lease, copy, now_ms, None, None), copy.ready_at))
    for event, rows in ((Event.LEASE_EXPIRED, returned), (Event.DEAD_LETTERED, dead)):
        if rows:
            work.journal(group.queue, event, group, None, rows)
    return len(due)


def _end_due(work: Work, group: Group, now_ms: int) -> list[Lease]:
    """Delete leases past their deadline and return them; bring pulls that looked due up to date."""
    due: list[Lease] = []
    ended: Counter[int] = Counter()
    for pull_id, pull in _pulls(work, group, "due <= ?", now_ms):
        open_leases = leases_of_pull(work, pull_id, pull)
        past = [lease for lease in open_leases if lease.until <= now_ms]
        if past:
            due += past
            ended[pull_id] = len(past)
        if len(past) < len(open_leases):
            left = [lease for lease in open_leases if lease.until > now_ms]
            earliest, shortest = min(lease.until for lease in left), min(lease.length for lease in left)
            work.execute("UPDATE broker_pulls SET due = ?, shortest = ? WHERE id = ?", (earliest, shortest, pull_id))
    work.executemany("DELETE FROM broker_leases WHERE id = ?", [(lease.id,) for lease in due])
    close_pulls(work, ended.items())
    return due


def _expire(work: Work, group: Group, now_ms: int) -> int:
    rows: list[tuple[Any, ...]] = []
    # One at a time: burying a head moves the next of its key, which may itself be past its time.
    nearest = f"{SELECT_WAITING} AND expiry <= ? ORDER BY expiry, seq LIMIT 1"
    while (found := work.execute(nearest, (group.id, now_ms)).fetchone()) is not None:
        copy = Copy(found)
        message = work.runs.message(copy.run, copy.seq)
        places.withdraw(work, group, copy)
        places.bury(work, group, copy, FailureKind.EXPIRED, now_ms, blocked=copy.slot == BLOCKED)
        rows.append((
            message[ID], copy.seq, None, copy.attempt, copy.failures, copy.crashes, None, message[TYPE], copy.lane,
            message[KEY], FailureKind.EXPIRED, None,
        ))  # fmt: skip
    if rows:
        work.journal(group.queue, Event.MESSAGE_EXPIRED, group, None, rows)
    return len(rows)


def _due_delays(work: Work, group: Group, now_ms: int) -> int:
    due = work.execute(
        f"{SELECT_WAITING} AND slot = {DELAYED} AND ord <= ? ORDER BY ord, seq", (group.id, now_ms)
    ).fetchall()
    for row in due:
        copy = Copy(row)
        places.withdraw(work, group, copy)
        places.wait(work, group, copy, now_ms)
    return len(due)


def exhausted(group: Group, copy: Copy) -> bool:
    """Say whether the group gives a message up after this delivery."""
    limit = group.spec.max_delivery_attempts
    return limit is not None and copy.attempt >= limit


def end_row(
    lease: Lease, copy: Copy, now_ms: int, run_ms: int | None, kind: FailureKind | None, fingerprint: str | None = None
) -> tuple[Any, ...]:
    """Return the journal row of a lease's end other than an ack."""
    return (
        lease.message_id, lease.seq, lease.token, copy.attempt, copy.failures, copy.crashes,
        now_ms - lease.pull.delivered_at if run_ms is None else run_ms,
        lease.type, lease.lane, lease.key, kind, fingerprint,
    )  # fmt: skip


def next_due(work: Work, group: Group) -> int | None:
    """Return when something may become ready by itself, or None."""
    times = []
    for counter, statement in (
        (group.leased, "SELECT min(due) FROM broker_pulls WHERE group_id = ?"),
        (group.delayed, f"SELECT min(ord) FROM broker_waiting WHERE group_id = ? AND slot = {DELAYED}"),  # noqa: S608
        (group.expiring, "SELECT min(expiry) FROM broker_waiting WHERE group_id = ? AND expiry IS NOT NULL"),
    ):
        if counter:
            (time,) = work.execute(statement, (group.id,)).fetchone()
            times.append(time)
    return min(times, default=None)
