"""Taking copies away at the caller's wish: cancel, purge, and what a removed group held."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from godwit.brokers.sqlite.layout import copies as places
from godwit.brokers.sqlite.layout.copies import BLOCKED, SELECT_WAITING, CopyRow
from godwit.brokers.sqlite.layout.ids import places_of
from godwit.brokers.sqlite.layout.leases import blocks_of
from godwit.brokers.sqlite.layout.rows import ASIDE, TURN_BITS, GroupRow
from godwit.brokers.sqlite.layout.runs import SEQ, SIZE
from godwit.brokers.sqlite.layout.step import SqliteStep
from godwit.core.journal.rows import cancelled_row, held_row, removal_row
from godwit.core.journal.vocabulary import Event
from godwit.core.names import GroupName, MessageId, QueueName, is_message_id


class Cleared(NamedTuple):
    """How many copies were taken away; `seqs` holds the lowest and the highest publish_seq, perhaps more."""

    copies: int
    seqs: list[int]


def cancel(work: SqliteStep, name: QueueName, message_id: MessageId) -> bool:
    """Delete a message wherever it waits; say whether there was one."""
    queue = work.queue(name)
    now_ms = work.now(queue)
    found = False
    known = places_of(work, queue, message_id) if is_message_id(message_id) else []
    for group in work.groups(queue).values():
        rows = [cancelled_row(message_id, seq) for run, seq in known if _withdraw(work, group, run, seq, now_ms)]
        if rows:
            found = True
            work.journal(queue, Event.CANCELLED, group, None, rows)
    return found


def _withdraw(work: SqliteStep, group: GroupRow, run: int, seq: int, now_ms: int) -> bool:
    """End a copy if it waits in this group."""
    row = work.execute(f"{SELECT_WAITING} AND seq = ?", (group.id, seq)).fetchone()
    if row is not None:
        copy = CopyRow(row)
        places.withdraw(work, group, copy)
        places.end(work, group, copy, now_ms, blocked=copy.slot == BLOCKED)
        work.ended[copy.run] += 1
        return True
    lane = run >> TURN_BITS & 7
    if lane >= ASIDE or run <= group.queue.floor(lane) + group.cursors[lane]:
        return False
    known = work.execute("SELECT n FROM broker_runs WHERE last = ?", (run,)).fetchone()
    if known is None:
        return False
    messages = work.runs.read(run)
    index = next(index for index, message in enumerate(messages) if message[SEQ] == seq)
    pos = run - len(messages) + 1 + index
    if pos <= group.queue.floor(lane) + group.cursors[lane]:
        return False
    if not work.execute("INSERT OR IGNORE INTO broker_skips VALUES (?, ?)", (group.id, pos)).rowcount:
        return False
    group.skips += 1
    group.ready -= 1
    group.bytes -= messages[index][SIZE]
    work.ended[run] += 1
    return True


def purge(work: SqliteStep, name: QueueName, group_name: GroupName | None) -> int:
    """Delete what waits; return how many copies."""
    queue = work.queue(name)
    work.now(queue)
    purged = 0
    groups = list(work.groups(queue).values()) if group_name is None else [work.group(queue, group_name)]
    for group in groups:
        cleared = clear_group(work, group, waiting_only=True)
        if cleared.copies:
            work.journal(queue, Event.PURGED, group, None, [removal_row(cleared.seqs, cleared.copies)])
        purged += cleared.copies
    return purged


def note_hold(
    work: SqliteStep, event: Event, name: QueueName, group_name: GroupName | None, hold: bytes | None
) -> None:
    """Write down that a queue or a group is held back or let go."""
    queue = work.queue(name)
    group = None if group_name is None else work.group(queue, group_name)
    work.now(queue)
    work.journal(queue, event, group, None, [held_row(hold)])


def clear_group(work: SqliteStep, group: GroupRow, *, waiting_only: bool) -> Cleared:
    """Take away all that waits, and unless `waiting_only` what is leased or dead too."""
    seqs = _clear_rows(work, "broker_waiting", group)
    seqs += _clear_walk(work, group)
    count = group.ready + group.blocked + group.delayed
    held = [lease for block in blocks_of(work, group) for lease in block.open.values()]
    work.execute("DELETE FROM broker_heads WHERE group_id = ?", (group.id,))
    if waiting_only:
        # A key whose head is leased keeps it; the others have nothing left.
        keys = [(group.id, lease.key) for lease in held if lease.key is not None and group.spec.message_ordering]
        work.executemany("INSERT OR IGNORE INTO broker_heads VALUES (?, ?)", keys)
    else:
        seqs += [lease.seq for lease in held]
        work.ended.update(Counter(lease.run for lease in held))
        work.execute("DELETE FROM broker_leases WHERE group_id = ?", (group.id,))
        seqs += _clear_rows(work, "broker_letters", group)
        count += group.leased + group.dead
    group.ready = group.blocked = group.delayed = group.explicit = group.expiring = group.skips = 0
    group.bytes = group.leased_bytes
    return Cleared(count, seqs)


def _clear_rows(work: SqliteStep, table: str, group: GroupRow) -> list[int]:
    rows = work.execute(f"DELETE FROM {table} WHERE group_id = ? RETURNING run, seq", (group.id,)).fetchall()  # noqa: S608
    work.ended.update(Counter(run for run, _ in rows))
    return [seq for _, seq in rows]


def _clear_walk(work: SqliteStep, group: GroupRow) -> list[int]:
    """Move the cursors past everything; only the outermost runs are read, the others are counted."""
    seqs: list[int] = []
    for lane in range(group.queue.spec.lanes):
        floor, ceiling = group.queue.floor(lane), group.queue.floor(lane + 1)
        cursor = floor + group.cursors[lane]
        runs = work.execute(
            "SELECT last, n FROM broker_runs WHERE last > ? AND last < ? ORDER BY last", (cursor, ceiling)
        ).fetchall()
        skips = {
            pos
            for (pos,) in work.execute(
                "DELETE FROM broker_skips WHERE group_id = ? AND pos > ? AND pos < ? RETURNING pos",
                (group.id, floor, ceiling),
            )
        }
        group.cursors[lane] = group.queue.turn
        for number, (last, n) in enumerate(runs):
            first = max(cursor, last - n) + 1
            skipped = sum(first <= pos <= last for pos in skips) if skips else 0
            if last - first + 1 == skipped:
                continue
            work.ended[last] += last - first + 1 - skipped
            if skips or number in (0, len(runs) - 1):
                messages = work.runs.read(last)
                seqs += [
                    message[SEQ]
                    for pos, message in enumerate(messages, last - n + 1)
                    if pos >= first and pos not in skips
                ]
    return seqs
