"""Pulling: take deliverable copies in order and lease them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from godwit.brokers.contract import Delivery
from godwit.brokers.sqlite.layout.copies import AGAIN, DELETE_WAITING, LANE, SELECT_WAITING, CopyRow, decode_errors
from godwit.brokers.sqlite.layout.leases import BLOCK_BITS, BLOCK_LEASES, INSERT_BLOCK, MARK_LENGTH, encode_leases
from godwit.brokers.sqlite.layout.rows import GroupRow, QueueRow
from godwit.brokers.sqlite.layout.runs import ENVELOPE_FIELDS, ID, KEY, MARKS, SIZE, TYPE, Message, envelope_of
from godwit.brokers.sqlite.layout.step import SqliteStep
from godwit.brokers.sqlite.maintain import forgives_many, has_expired, maintain_group
from godwit.core.journal.rows import JournalRow, delivered_row
from godwit.core.journal.vocabulary import Event
from godwit.core.messages.envelope import Envelope
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import LOWEST_FIRST_EVERY

SELECT_RUNS: Final = "SELECT last, n FROM broker_runs WHERE last > ? AND last < ? ORDER BY last"

Taken = tuple[int, Message, CopyRow | None, int]
"""Run, message, its row when it has one, and the turn it came in."""


def pull(
    work: SqliteStep,
    name: QueueName,
    group_name: GroupName,
    *,
    worker: str,
    limit: int,
    lease_ms: int,
    max_bytes: int | None,
    briefly: bool,
) -> list[Delivery] | None:
    """Look after the group, then lease up to `limit` messages; None when it has to be brief and would not be."""
    queue = work.queue(name)
    group = work.group(queue, group_name)
    now_ms = work.now(queue)
    if briefly and forgives_many(group, now_ms):
        return None
    maintain_group(work, group, now_ms)
    if has_expired(work, group, now_ms):
        return []  # more than one step may bury: nothing goes before it
    flow = group.spec.flow_control
    if flow.max_messages is not None:
        limit = min(limit, flow.max_messages - group.leased)
    if limit <= 0 or not group.ready:
        return []
    taken = list(_within(group, _in_order(work, group, limit), limit, max_bytes))
    if not taken:
        return []
    _withdraw(work, group, taken)
    group.looked_at = now_ms
    return _lease(work, queue, group, taken, worker, lease_ms, now_ms)


def _lane_order(group: GroupRow) -> Iterable[int]:
    highest_first = range(group.queue.spec.lanes - 1, -1, -1)
    return reversed(highest_first) if group.pulls % LOWEST_FIRST_EVERY == LOWEST_FIRST_EVERY - 1 else highest_first


def _in_order(work: SqliteStep, group: GroupRow, limit: int) -> Iterator[Taken]:
    """Give deliverable copies in delivery order, at least `limit` if there are so many."""
    for lane in _lane_order(group):
        if group.explicit:
            yield from _rows(work, group, AGAIN + lane, limit)
            yield from _merged(_rows(work, group, LANE + lane, limit), walk(work, group, lane))
        else:
            yield from walk(work, group, lane)


def _rows(work: SqliteStep, group: GroupRow, slot: int, limit: int) -> Iterator[Taken]:
    statement = f"{SELECT_WAITING} AND slot = ? ORDER BY ord, seq LIMIT ?"
    for row in work.execute(statement, (group.id, slot, limit)).fetchall():
        copy = CopyRow(row)
        yield copy.run, work.runs.message(copy.run, copy.seq), copy, copy.ord


def walk(work: SqliteStep, group: GroupRow, lane: int) -> Iterator[Taken]:
    """Give the copies beyond the group's cursor in a lane's runs."""
    if group.ready == group.explicit:
        return
    floor = group.queue.floor(lane)
    cursor = group.cursors[lane]
    skipped: set[int] = set()
    if group.skips:
        skips = "SELECT pos FROM broker_skips WHERE group_id = ? AND pos > ? AND pos < ?"
        bounds = (group.id, floor + cursor, group.queue.floor(lane + 1))
        skipped = {pos - floor for (pos,) in work.execute(skips, bounds)}
    for last, n in work.execute(SELECT_RUNS, (floor + cursor, group.queue.floor(lane + 1))):
        messages = work.runs.read(last)
        turn = last - floor - n
        for message in messages:
            turn += 1
            if turn > cursor and turn not in skipped:
                yield last, message, None, turn


def _merged(rows: Iterator[Taken], walk: Iterator[Taken]) -> Iterator[Taken]:
    """Merge copies with and without rows by the turn they came in."""
    row, next_walk = next(rows, None), next(walk, None)
    while row is not None or next_walk is not None:
        if next_walk is None or (row is not None and row[3] < next_walk[3]):
            if row is not None:
                yield row
            row = next(rows, None)
        else:
            yield next_walk
            next_walk = next(walk, None)


def _within(group: GroupRow, found: Iterator[Taken], limit: int, max_bytes: int | None) -> Iterator[Taken]:
    """Stop at `limit`, and before what would exceed the call's or the group's byte limits."""
    flow_bytes = group.spec.flow_control.max_bytes
    bounded = max_bytes is not None or flow_bytes is not None
    total = 0
    for count, one in enumerate(islice(found, limit)):
        if bounded:
            size = one[1][SIZE]
            if max_bytes is not None and count and total + size > max_bytes:
                return
            if flow_bytes is not None and (group.leased or count) and group.leased_bytes + total + size > flow_bytes:
                return
            total += size
        yield one


def _withdraw(work: SqliteStep, group: GroupRow, taken: list[Taken]) -> None:
    """Take copies out of their places: rows are deleted, cursors move past the rest."""
    rows = [copy for _, _, copy, _ in taken if copy is not None]
    if rows:
        work.executemany(DELETE_WAITING, [(group.id, copy.slot, copy.ord, copy.seq) for copy in rows])
        group.explicit -= len(rows)
        group.expiring -= sum(copy.expiry is not None for copy in rows)
    moved = {message[ENVELOPE_FIELDS + 2]: turn for _, message, copy, turn in taken if copy is None}
    for lane, turn in moved.items():
        group.cursors[lane] = turn
        if group.skips:
            floor = group.queue.floor(lane)
            passed = "DELETE FROM broker_skips WHERE group_id = ? AND pos > ? AND pos <= ?"
            group.skips -= work.execute(passed, (group.id, floor, floor + turn)).rowcount
    group.ready -= len(taken)


def _lease(
    work: SqliteStep, queue: QueueRow, group: GroupRow, taken: list[Taken], worker: str, lease_ms: int, now_ms: int
) -> list[Delivery]:
    until = now_ms + lease_ms
    deliveries: list[Delivery] = []
    rows: list[JournalRow] = []
    for start in range(0, len(taken), BLOCK_LEASES):
        block = taken[start : start + BLOCK_LEASES]
        leases = [_lease_of(place, one, until, lease_ms) for place, one in enumerate(block)]
        mark = secrets.token_hex(MARK_LENGTH // 2)
        stored = work.execute(INSERT_BLOCK, (group.id, mark, worker, now_ms, until, lease_ms, encode_leases(leases)))
        number = (stored.lastrowid or 0) << BLOCK_BITS
        _describe(group, block, leases, mark, number, now_ms, deliveries, rows)
    group.leased += len(taken)
    group.leased_bytes += sum(message[SIZE] for _, message, _, _ in taken)
    group.pulls += 1
    work.journal(queue, Event.DELIVERED, group, worker, rows)
    return deliveries


def _lease_of(place: int, one: Taken, until: int, lease_ms: int) -> tuple[Any, ...]:
    """Return a new lease as it is stored."""
    run, message, copy, _ = one
    if copy is None:
        seq, ready_at, lane, expiry = message[ENVELOPE_FIELDS:MARKS]
        return (
            place, run, seq, message[ID], message[TYPE], lane, message[KEY], message[SIZE], 1, 0, 0, ready_at, expiry,
            None, until, lease_ms,
        )  # fmt: skip
    return (
        place, run, copy.seq, message[ID], message[TYPE], copy.lane, message[KEY], message[SIZE], copy.attempt + 1,
        copy.failures, copy.crashes, copy.ready_at, copy.expiry, copy.errors, until, lease_ms,
    )  # fmt: skip


def _describe(
    group: GroupRow,
    block: list[Taken],
    leases: list[tuple[Any, ...]],
    mark: str,
    number: int,
    now_ms: int,
    deliveries: list[Delivery],
    rows: list[JournalRow],
) -> None:
    """Add new leases to the answer for the worker and to the journal."""
    prefix, name, group_name = group.ack_prefix, group.queue.name, group.name
    for one, lease in zip(block, leases, strict=True):
        message = one[1]
        place, _, seq, id, type, lane, key, _, attempt, failures, crashes, ready_at, _, errors, until, _ = lease  # noqa: A001
        token = f"{mark}{number + place:x}"
        history = decode_errors(errors) if errors is not None else ()
        deliveries.append(
            Delivery(
                prefix + token,  # type: ignore[arg-type]  # an AckId, without its call
                name,
                group_name,
                Envelope(*message[:ENVELOPE_FIELDS]) if len(message) == MARKS else envelope_of(message),
                seq,
                attempt,
                failures,
                crashes,
                history,
                ready_at,
                now_ms,
                until,
            )
        )
        rows.append(
            delivered_row(id, seq, token, attempt, failures, crashes, until, now_ms - ready_at, type, lane, key)
        )
