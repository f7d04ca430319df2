"""What can be read without changing anything: stats, a queue's copies, whether a pull would find something."""

from __future__ import annotations

from typing import NamedTuple

from godwit.brokers.contract import GroupStats, QueueStats, Snapshot
from godwit.brokers.sqlite.layout.copies import SELECT_WAITING, CopyRow
from godwit.brokers.sqlite.layout.leases import blocks_of
from godwit.brokers.sqlite.layout.rows import GroupRow
from godwit.brokers.sqlite.layout.runs import ID, READY_AT, SEQ
from godwit.brokers.sqlite.layout.step import SqliteStep
from godwit.brokers.sqlite.maintain import next_due
from godwit.brokers.sqlite.pull import walk
from godwit.core.journal.projection import CopyState
from godwit.core.journal.shards import Position
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import QueueSpec


def stats(work: SqliteStep) -> list[QueueStats]:
    """Say how much every queue holds."""
    return [
        QueueStats(
            name=queue.name,
            published=queue.published,
            duplicates=queue.duplicates,
            groups=tuple(_group_stats(queue.spec, group) for group in work.groups(queue).values()),
        )
        for queue in work.queues()
    ]


def _group_stats(spec: QueueSpec, group: GroupRow) -> GroupStats:
    full = (spec.max_size is not None and group.depth >= spec.max_size) or (
        spec.max_bytes is not None and group.bytes >= spec.max_bytes
    )
    return GroupStats(
        name=group.name,
        ready=group.ready,
        blocked=group.blocked,
        delayed=group.delayed,
        leased=group.leased,
        dead=group.dead,
        bytes=group.bytes,
        leased_bytes=group.leased_bytes,
        dropped=group.dropped,
        full=full,
    )


class Outlook(NamedTuple):
    """What a waiting pull can expect: how much now, something at a time, and when to say that it still waits.

    Both times are by the clock, which a queue's own time may be ahead of.
    """

    ready: int
    due_ms: int | None
    renew_ms: int | None


def outlook(work: SqliteStep, name: QueueName, group_name: GroupName) -> Outlook:
    """Say whether a pull would find something now, or from when on."""
    queue = work.queue(name)
    group = work.group(queue, group_name)
    flow = group.spec.flow_control.max_messages
    ready = group.ready if flow is None else min(group.ready, max(0, flow - group.leased))
    renew_ms = None
    if group.leased and group.spec.forgive_outages:
        shortest = "SELECT min(shortest) FROM broker_leases WHERE group_id = ?"
        (length,) = work.execute(shortest, (group.id,)).fetchone()
        renew_ms = work.reached_ms(queue, group.looked_at + max(1, length // 2))
    due_ms = next_due(work, group)
    return Outlook(ready, None if due_ms is None else work.reached_ms(queue, due_ms), renew_ms)


def snapshot(work: SqliteStep, name: QueueName) -> Snapshot:
    """List a queue's copies as of the newest row of its journal; to be called inside one read transaction."""
    queue = work.queue(name)
    copies: list[CopyState] = []
    for group in work.groups(queue).values():
        copies += _walked(work, group)
        for row in work.execute(SELECT_WAITING, (group.id,)).fetchall():
            copies.append(_state(work, group, CopyRow(row), "waiting"))
        copies += _leased(work, group)
        copies += _dead(work, group)
    return Snapshot(position=Position(queue.epoch, queue.seq), copies=tuple(copies))


def _walked(work: SqliteStep, group: GroupRow) -> list[CopyState]:
    """Return the copies that have no row of their own."""
    return [
        CopyState(
            queue=group.queue.name,
            group=group.name,
            publish_seq=message[SEQ],
            message_id=message[ID],
            state="waiting",
            ready_at=message[READY_AT],
        )
        for lane in range(group.queue.spec.lanes)
        for _, message, _, _ in walk(work, group, lane)
    ]


def _state(work: SqliteStep, group: GroupRow, copy: CopyRow, state: str) -> CopyState:
    return CopyState(
        queue=group.queue.name,
        group=group.name,
        publish_seq=copy.seq,
        message_id=work.runs.message(copy.run, copy.seq)[ID],
        state=state,
        ready_at=copy.ready_at,
        attempt=copy.attempt,
        failures=copy.failures,
        crashes=copy.crashes,
    )


def _leased(work: SqliteStep, group: GroupRow) -> list[CopyState]:
    return [
        CopyState(
            queue=group.queue.name,
            group=group.name,
            publish_seq=lease.seq,
            message_id=lease.message_id,
            state="leased",
            ready_at=lease.ready_at,
            delivery_id=block.token(lease),
            lease_until=lease.until,
            attempt=lease.attempt,
            failures=lease.failures,
            crashes=lease.crashes,
        )
        for block in blocks_of(work, group)
        for lease in block.open.values()
    ]


def _dead(work: SqliteStep, group: GroupRow) -> list[CopyState]:
    dead = "SELECT run, seq, ready_at, attempt, failures, crashes FROM broker_letters WHERE group_id = ?"
    return [
        CopyState(
            queue=group.queue.name,
            group=group.name,
            publish_seq=seq,
            message_id=work.runs.message(run, seq)[ID],
            state="dead",
            ready_at=ready_at,
            attempt=attempt,
            failures=failures,
            crashes=crashes,
        )
        for run, seq, ready_at, attempt, failures, crashes in work.execute(dead, (group.id,)).fetchall()
    ]
