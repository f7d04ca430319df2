"""Message ids: the dedup window, and the way from an id to where its messages are (for cancel)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from godwit.brokers.sqlite.layout.rows import QueueRow
from godwit.brokers.sqlite.layout.run_plan import Run, RunPlan
from godwit.brokers.sqlite.layout.runs import ID, READY_AT, SEQ, Message
from godwit.brokers.sqlite.layout.step import SqliteStep
from godwit.core.clock import milliseconds
from godwit.core.messages.envelope import Envelope

INSERT_RUN: Final = "INSERT OR IGNORE INTO broker_ids SELECT ?1, value, ?2, ?3, ?4 + key, NULL FROM json_each(?5)"
INSERT_ID: Final = "INSERT OR IGNORE INTO broker_ids VALUES (?, ?, ?, ?, ?, NULL)"
DELETE_NEW: Final = "DELETE FROM broker_ids WHERE queue_id = ? AND id = ? AND seq = ?"
SELECT_ID: Final = "SELECT until, run, seq, older FROM broker_ids WHERE queue_id = ? AND id = ?"
UPSERT_ID: Final = "INSERT OR REPLACE INTO broker_ids VALUES (?, ?, ?, ?, ?, ?)"
SELECT_NEXT: Final = (
    "SELECT queue_id, id, until, run, seq, older FROM broker_ids WHERE (queue_id, id) > (?, ?) "
    "ORDER BY queue_id, id LIMIT ?"
)
INSERT_REPEAT: Final = "INSERT OR IGNORE INTO broker_repeats VALUES (?, ?, ?, ?)"
SELECT_REPEATS: Final = "SELECT run, seq FROM broker_repeats WHERE queue_id = ? AND id = ?"
NEXT_REPEATS: Final = (
    "SELECT queue_id, id, seq, run FROM broker_repeats WHERE (queue_id, id, seq) > (?, ?, ?) "
    "ORDER BY queue_id, id, seq LIMIT ?"
)
DELETE_REPEAT: Final = "DELETE FROM broker_repeats WHERE queue_id = ? AND id = ? AND seq = ?"
LEAST_SWEPT: Final = 500
REPEATS_SWEPT: Final = 2_000
SWEEPS_A_CYCLE: Final = 300
"""The table is swept once in so many steps, however large it is: in five minutes at one a second."""

Stored = Sequence[tuple[Message, Run]]
Place = tuple[int, int]
"""Run and publish_seq of a message."""

_encode_names = msgspec.json.Encoder().encode
_decode_places = msgspec.msgpack.Decoder(list[Place]).decode


def insert_ids(work: SqliteStep, queue: QueueRow, plan: RunPlan, now_ms: int) -> bool:
    """Remember ids if all of them are new, otherwise none; say which."""
    window_ms = milliseconds(queue.spec.dedup_window)
    run = plan.only_run
    if run is not None:
        # Only the ids differ: one statement with a list is half the price of one statement an id.
        messages = run.messages
        names = _encode_names([message[ID] for message in messages]).decode()
        until = now_ms + window_ms if window_ms else 0
        facts = (queue.id, until, run.last, messages[0][SEQ], names)
        if work.execute(INSERT_RUN, facts).rowcount == len(messages):
            return True
        rows = [(queue.id, message[ID], until, run.last, message[SEQ]) for message in messages]
    else:
        # A message's ready_at is the later of acceptance and deliver_at: just what the window counts from.
        rows = [
            (queue.id, message[ID], message[READY_AT] + window_ms if window_ms else 0, run.last, message[SEQ])
            for message, run in plan.stored()
        ]
        if work.executemany(INSERT_ID, rows).rowcount == len(rows):
            return True
    # No savepoint around it, which would cost all publishes: the new publish_seqs tell our rows from older ones.
    work.executemany(DELETE_NEW, [(row[0], row[1], row[4]) for row in rows])
    return False


def without_known(work: SqliteStep, queue: QueueRow, chunk: Sequence[Envelope], now_ms: int) -> Sequence[Envelope]:
    """Return those whose id was not accepted inside the window, nor earlier in the chunk."""
    if not queue.spec.dedup_window:
        return chunk
    seen: set[str] = set()
    fresh = []
    for envelope in chunk:
        if envelope.id in seen:
            continue
        row = work.execute(SELECT_ID, (queue.id, envelope.id)).fetchone()
        if row is None or row[0] <= now_ms:
            seen.add(envelope.id)
            fresh.append(envelope)
    return fresh


def upsert_ids(work: SqliteStep, queue: QueueRow, stored: Stored, *, remember: bool) -> None:
    """Point ids to their newest messages, keeping the way to older ones that still live."""
    window_ms = milliseconds(queue.spec.dedup_window)
    coming = frozenset(run.last for _, run in stored)
    for message, run in stored:
        until = message[READY_AT] + window_ms if remember and window_ms else 0
        point_to(work, queue, message[ID], (run.last, message[SEQ]), until, coming)


def point_to(
    work: SqliteStep, queue: QueueRow, id: str, place: Place, until: int = 0, coming: frozenset[int] = frozenset()
) -> None:
    """Let an id lead to a new message first; runs that are `coming` live though they are not written yet."""
    row = work.execute(SELECT_ID, (queue.id, id)).fetchone()
    older: bytes | None = None
    if row is not None:
        known_until, run, seq, older = row
        until = max(until, known_until)
        # A row each: a list of them would be read and written again with every message of this id.
        if run in coming or work.runs.alive(run):
            work.execute(INSERT_REPEAT, (queue.id, id, seq, run))
    work.execute(UPSERT_ID, (queue.id, id, until, *place, older))


def places_of(work: SqliteStep, queue: QueueRow, id: str) -> list[Place]:
    """Return where the messages with this id are or were, newest first."""
    row = work.execute(SELECT_ID, (queue.id, id)).fetchone()
    if row is None:
        return []
    repeats: list[Place] = work.execute(f"{SELECT_REPEATS} ORDER BY seq DESC", (queue.id, id)).fetchall()
    newest, *older = _places(row)
    return [newest, *repeats, *older]


def _places(row: tuple[int, int, int, bytes | None]) -> list[Place]:
    """Return where the newest message of an id is, and those that an earlier version kept in a list."""
    return [(row[1], row[2]), *(_decode_places(row[3]) if row[3] is not None else ())]


class Sweep:
    """A walk through the ids, a little further with every step, that deletes those no longer needed.

    Nothing is written when an id comes in, and no index is kept over times: a publish would pay for both.
    """

    def __init__(self) -> None:
        self._place: tuple[int, str] = (0, "")
        self._repeat: tuple[int, str, int] = (0, "", 0)
        self._seen = self._last_cycle = 0
        self._steps_left, self._is_done = SWEEPS_A_CYCLE, False

    def step(self, work: SqliteStep, now_ms: int) -> int:
        """Look at the next ids; return how many were deleted. A small table is soon swept and then left alone."""
        self._forget_repeats(work)
        self._steps_left -= 1
        if self._is_done:
            if self._steps_left > 0:
                return 0
            self._is_done, self._steps_left = False, SWEEPS_A_CYCLE
        limit = max(LEAST_SWEPT, self._last_cycle // SWEEPS_A_CYCLE, self._seen // SWEEPS_A_CYCLE)
        rows = work.execute(SELECT_NEXT, (*self._place, limit)).fetchall()
        gone = [row[:2] for row in rows if row[2] <= now_ms and not _leads_anywhere(work, row)]
        work.executemany("DELETE FROM broker_ids WHERE queue_id = ? AND id = ?", gone)
        self._seen += len(rows) - len(gone)
        if len(rows) == limit:
            self._place = rows[-1][:2]
        else:
            self._place, self._last_cycle, self._seen = (0, ""), self._seen, 0
            self._is_done = True
        return len(gone)

    def _forget_repeats(self, work: SqliteStep) -> None:
        rows = work.execute(NEXT_REPEATS, (*self._repeat, REPEATS_SWEPT)).fetchall()
        work.executemany(DELETE_REPEAT, [row[:3] for row in rows if not work.runs.alive(row[3])])
        self._repeat = rows[-1][:3] if len(rows) == REPEATS_SWEPT else (0, "", 0)


def _leads_anywhere(work: SqliteStep, row: tuple[Any, ...]) -> bool:
    """Say whether a message with this id still lives."""
    if any(work.runs.alive(place[0]) for place in _places(row[2:])):
        return True
    return work.execute(f"{SELECT_REPEATS} LIMIT 1", row[:2]).fetchone() is not None
