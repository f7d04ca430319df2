"""Dead letters: paging, replay, discard, and feeding declared dead letter queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from godwit.brokers.arguments import number_of
from godwit.brokers.contract import PUBLISH_CHUNK, DeadLetter, LetterId
from godwit.brokers.sqlite.layout.arrival_rows import NO_MARKS
from godwit.brokers.sqlite.layout.copies import admit, decode_errors, new_copy
from godwit.brokers.sqlite.layout.ids import point_to
from godwit.brokers.sqlite.layout.rows import ASIDE, GroupRow, QueueRow
from godwit.brokers.sqlite.layout.run_plan import LANES
from godwit.brokers.sqlite.layout.runs import (
    BODY,
    CAMPAIGN,
    DELIVER_AT,
    ID,
    KEY,
    MARKS,
    PRIORITY,
    SCHEDULE_ID,
    SEQ,
    SIZE,
    TYPE,
    envelope_of,
    message_of,
)
from godwit.brokers.sqlite.layout.step import SqliteStep
from godwit.brokers.sqlite.publish import accept
from godwit.core.errors import QueueFull, QueueNotFound
from godwit.core.failures.failure import FailureKind
from godwit.core.journal.rows import discarded_row, replayed_row
from godwit.core.journal.vocabulary import Event
from godwit.core.names import GroupName, QueueName

COLUMNS: Final = "number, run, seq, size, kind, dead_at, attempt, failures, crashes, errors"
SELECT_LETTERS: Final = f"SELECT {COLUMNS} FROM broker_letters WHERE group_id = ?"  # noqa: S608
DELETE_LETTER: Final = "DELETE FROM broker_letters WHERE group_id = ? AND number = ?"


class LetterRow:
    """A dead letter."""

    __slots__ = ("attempt", "crashes", "dead_at", "errors", "failures", "kind", "number", "run", "seq", "size")

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.number: int
        self.run: int
        self.seq: int
        self.size: int
        self.kind: str
        self.dead_at: int
        self.attempt: int
        self.failures: int
        self.crashes: int
        self.errors: bytes | None
        (
            self.number, self.run, self.seq, self.size, self.kind, self.dead_at, self.attempt, self.failures,
            self.crashes, self.errors,
        ) = row  # fmt: skip


def page(
    work: SqliteStep, name: QueueName, group_name: GroupName | None, after: LetterId | None, limit: int
) -> list[DeadLetter]:
    """Return letters beyond `after`, by queue, group and time of death."""
    sources = [queue for queue in work.queues() if name in (queue.name, queue.spec.dead_letter_queue)]
    if not sources:
        raise QueueNotFound(name, work.queue_names())
    groups = [group for queue in sources for group in work.groups(queue).values() if group_name in (None, group.name)]
    found: list[DeadLetter] = []
    for group in sorted(groups, key=lambda group: group.ack_prefix):
        if after is not None and f"{group.ack_prefix}\x7f" < after:
            continue
        beyond = 0
        if after is not None and after.startswith(group.ack_prefix):
            beyond = number_of(after.removeprefix(group.ack_prefix)) or 0
        statement = f"{SELECT_LETTERS} AND number > ? ORDER BY number LIMIT ?"
        rows = work.execute(statement, (group.id, beyond, limit - len(found))).fetchall()
        found += [_dead_letter(work, group, LetterRow(row)) for row in rows]
        if len(found) >= limit:
            break
    return found


def _dead_letter(work: SqliteStep, group: GroupRow, letter: LetterRow) -> DeadLetter:
    return DeadLetter(
        id=LetterId(f"{group.ack_prefix}{letter.number:012d}"),
        queue=group.queue.name,
        group=group.name,
        envelope=envelope_of(work.runs.message(letter.run, letter.seq)),
        publish_seq=letter.seq,
        kind=FailureKind(letter.kind),
        dead_at_ms=letter.dead_at,
        attempt=letter.attempt,
        failures=letter.failures,
        crashes=letter.crashes,
        errors=decode_errors(letter.errors),
    )


Found = dict[int, tuple[GroupRow, dict[int, LetterRow]]]


def _find(work: SqliteStep, letter_ids: Sequence[LetterId]) -> tuple[Found, list[LetterId]]:
    found: Found = {}
    unknown = []
    for letter_id in letter_ids:
        group, rest = work.addressed(letter_id)
        number = number_of(rest) or 0
        row = (
            work.execute(f"{SELECT_LETTERS} AND number = ?", (group.id, number)).fetchone()
            if group is not None
            else None
        )
        if group is None or row is None or number in found.get(group.id, (group, {}))[1]:
            unknown.append(letter_id)
        else:
            found.setdefault(group.id, (group, {}))[1][number] = LetterRow(row)
    return found, unknown


def replay(work: SqliteStep, letter_ids: Sequence[LetterId]) -> list[LetterId]:
    """Let dead letters wait again as new copies; return those that do not exist."""
    found, unknown = _find(work, letter_ids)
    for group, letters in found.values():
        _check_room(group, letters)
    for group, letters in found.values():
        _replay(work, group, letters)
    return unknown


def _check_room(group: GroupRow, letters: dict[int, LetterRow]) -> None:
    spec = group.queue.spec
    if spec.max_size is not None and group.depth + len(letters) > spec.max_size:
        raise QueueFull(spec.name, group.name, "max_size", spec.max_size)
    if spec.max_bytes is not None and group.bytes + sum(one.size for one in letters.values()) > spec.max_bytes:
        raise QueueFull(spec.name, group.name, "max_bytes", spec.max_bytes)


def _replay(work: SqliteStep, group: GroupRow, letters: dict[int, LetterRow]) -> None:
    queue = group.queue
    now_ms = work.now(queue)
    ordered_lane = group.ordered_lane if group.spec.message_ordering else None
    rows = []
    for letter in letters.values():
        former = work.runs.message(letter.run, letter.seq)
        _remove(work, group, letter)
        queue.publish_seq += 1
        turn = queue.next_turn()
        run = queue.floor(ASIDE) + turn
        lane = LANES[former[PRIORITY]] if queue.spec.lanes > 1 else 0
        message = message_of(envelope_of(former), queue.publish_seq, now_ms, lane, None)
        work.runs.write(run, [message], live=1, holds=0)
        copy = new_copy(message, run, ordered_lane=ordered_lane)
        copy.errors = letter.errors
        admit(work, group, copy, now_ms, turn)
        point_to(work, queue, message[ID], (run, message[SEQ]))
        keyed = ordered_lane is not None and message[KEY] is not None
        rows.append(
            replayed_row(
                message[ID], message[SEQ], message[TYPE], message[PRIORITY], ordered_lane if keyed else lane,
                message[KEY], now_ms, message[DELIVER_AT], message[SIZE], message[SCHEDULE_ID], message[CAMPAIGN],
                message[BODY] if queue.keeps_body else None, letter.seq, *(message[MARKS:] or NO_MARKS),
            )
        )  # fmt: skip
    work.journal(queue, Event.REPLAYED, group, None, rows)


def _remove(work: SqliteStep, group: GroupRow, letter: LetterRow) -> None:
    work.execute(DELETE_LETTER, (group.id, letter.number))
    work.ended[letter.run] += 1
    group.dead -= 1


def discard(work: SqliteStep, letter_ids: Sequence[LetterId]) -> list[LetterId]:
    """Delete dead letters; return those that do not exist."""
    found, unknown = _find(work, letter_ids)
    for group, letters in found.values():
        _discard(work, group, list(letters.values()), None)
    return unknown


def _discard(work: SqliteStep, group: GroupRow, letters: list[LetterRow], target: str | None) -> int:
    rows = []
    for letter in letters:
        message = work.runs.message(letter.run, letter.seq)
        _remove(work, group, letter)
        rows.append(discarded_row(message[ID], letter.seq, target))
    if rows:
        work.now(group.queue)
        work.journal(group.queue, Event.DISCARDED, group, None, rows)
    return len(rows)


def feed(work: SqliteStep, source: QueueRow) -> int:
    """Move dead letters of a queue into its declared dead letter queue, in order, as far as there is room.

    At most a chunk of each group: call it until it moves nothing.
    """
    name = source.spec.dead_letter_queue
    target = work.find_queue(name) if name is not None else None
    if target is None or not work.groups(target):
        return 0
    moved = 0
    for group in work.groups(source).values():
        size = PUBLISH_CHUNK
        while group.dead and size:
            rows = work.execute(f"{SELECT_LETTERS} ORDER BY number LIMIT ?", (group.id, size)).fetchall()
            letters = [LetterRow(row) for row in rows]
            envelopes = [
                msgspec.structs.replace(
                    envelope_of(work.runs.message(letter.run, letter.seq)),
                    queue=target.name,
                    group=None,
                    deliver_at_ms=None,
                    expires_at_ms=None,
                )
                for letter in letters
            ]
            try:
                accept(work, target, envelopes, moved=True)
            except QueueFull:
                size = len(letters) // 2
                continue
            moved += _discard(work, group, letters, target.name)
            break
    return moved
