"""Message ids: the dedup window, and the way from an id to where its messages are (for cancel)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from godwit.brokers.sqlite.plan import Plan, Run
from godwit.brokers.sqlite.rows import Queue
from godwit.brokers.sqlite.runs import ID, READY_AT, SEQ, Message
from godwit.brokers.sqlite.work import Work
from godwit.core.clock import milliseconds
from godwit.core.envelope import Envelope

INSERT_RUN: Final = "INSERT OR IGNORE INTO broker_ids SELECT ?1, value, ?2, ?3, ?4 + key, NULL FROM json_each(?5)"
INSERT_ID: Final = "INSERT OR IGNORE INTO broker_ids VALUES (?, ?, ?, ?, ?, NULL)"
DELETE_NEW: Final = "DELETE FROM broker_ids WHERE queue_id = ? AND id = ? AND seq = ?"
SELECT_ID: Final = "SELECT until, run, seq, older FROM broker_ids WHERE queue_id = ? AND id = ?"
UPSERT_ID: Final = "INSERT OR REPLACE INTO broker_ids VALUES (?, ?, ?, ?, ?, ?)"
INSERT_FORGET: Final = "INSERT INTO broker_forget (look_at, queue_id, ids) VALUES (?, ?, ?)"
LOOK_AGAIN_MS: Final = 600_000
"""When to ask again about an id that left its window while its message still waits."""

Stored = Sequence[tuple[Message, Run]]
Place = tuple[int, int]
"""Run and publish_seq of a message."""

_encode = msgspec.msgpack.Encoder().encode
_encode_names = msgspec.json.Encoder().encode
_decode_names = msgspec.json.Decoder(list[str]).decode
_decode_places = msgspec.msgpack.Decoder(list[Place]).decode


def insert_ids(work: Work, queue: Queue, plan: Plan, now_ms: int) -> bool:
    """Remember ids if all of them are new, otherwise none; say which."""
    window_ms = milliseconds(queue.spec.dedup_window)
    run = plan.only_run
    if run is not None:
        # Only the ids differ: one statement with a list is half the price of one statement an id.
        messages = run.messages
        names = _encode_names([message[ID] for message in messages])
        until = now_ms + window_ms if window_ms else 0
        facts = (queue.id, until, run.last, messages[0][SEQ], names.decode())
        if work.execute(INSERT_RUN, facts).rowcount == len(messages):
            work.execute(INSERT_FORGET, (until or now_ms + LOOK_AGAIN_MS, queue.id, names))
            return True
        rows = [(queue.id, message[ID], until, run.last, message[SEQ]) for message in messages]
    else:
        # A message's ready_at is the later of acceptance and deliver_at: just what the window counts from.
        rows = [
            (queue.id, message[ID], message[READY_AT] + window_ms if window_ms else 0, run.last, message[SEQ])
            for message, run in plan.stored()
        ]
        if work.executemany(INSERT_ID, rows).rowcount == len(rows):
            look_at = max(row[2] for row in rows) or now_ms + LOOK_AGAIN_MS
            _look_later(work, queue.id, [row[1] for row in rows], look_at)
            return True
    # No savepoint around it, which would cost all publishes: the new publish_seqs tell our rows from older ones.
    work.executemany(DELETE_NEW, [(row[0], row[1], row[4]) for row in rows])
    return False


def without_known(work: Work, queue: Queue, chunk: Sequence[Envelope], now_ms: int) -> Sequence[Envelope]:
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


def upsert_ids(work: Work, queue: Queue, stored: Stored, now_ms: int, *, remember: bool) -> None:
    """Point ids to their newest messages, keeping the way to older ones that still live."""
    window_ms = milliseconds(queue.spec.dedup_window)
    look_at = now_ms + LOOK_AGAIN_MS
    for message, run in stored:
        until = message[READY_AT] + window_ms if remember and window_ms else 0
        look_at = max(look_at, until)
        point_to(work, queue, message[ID], (run.last, message[SEQ]), until)
    if stored:
        _look_later(work, queue.id, [message[ID] for message, _ in stored], look_at)


def point_to(work: Work, queue: Queue, id: str, place: Place, until: int = 0) -> None:
    """Let an id lead to a new message first."""
    row = work.execute(SELECT_ID, (queue.id, id)).fetchone()
    older: list[Place] = []
    if row is not None:
        until = max(until, row[0])
        older = [found for found in _places(row) if work.runs.alive(found[0])]
    work.execute(UPSERT_ID, (queue.id, id, until, *place, _encode(older) if older else None))


def places_of(work: Work, queue: Queue, id: str) -> list[Place]:
    """Return where the messages with this id are or were, newest first."""
    row = work.execute(SELECT_ID, (queue.id, id)).fetchone()
    return _places(row) if row is not None else []


def _places(row: tuple[int, int, int, bytes | None]) -> list[Place]:
    return [(row[1], row[2]), *(_decode_places(row[3]) if row[3] is not None else ())]


def _look_later(work: Work, queue_id: int, ids: list[str], look_at: int) -> None:
    work.execute(INSERT_FORGET, (look_at, queue_id, _encode_names(ids)))


def forget_ids(work: Work, now_ms: int, *, limit: int = 100) -> None:
    """Delete ids past their window whose messages are gone, at most `limit` steps' worth."""
    due = work.execute(
        "SELECT place, queue_id, ids FROM broker_forget WHERE look_at <= ? ORDER BY look_at LIMIT ?", (now_ms, limit)
    ).fetchall()
    for place, queue_id, encoded in due:
        kept = []
        for id in _decode_names(encoded):  # noqa: A001
            row = work.execute(SELECT_ID, (queue_id, id)).fetchone()
            if row is None:
                continue
            if row[0] > now_ms or any(work.runs.alive(run) for run, _ in _places(row)):
                kept.append(id)
            else:
                work.execute("DELETE FROM broker_ids WHERE queue_id = ? AND id = ?", (queue_id, id))
        work.execute("DELETE FROM broker_forget WHERE place = ?", (place,))
        if kept:
            _look_later(work, queue_id, kept, now_ms + LOOK_AGAIN_MS)
