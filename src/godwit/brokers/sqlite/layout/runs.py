"""Runs: consecutive messages of one publish, stored together once and read together.

A message is a tuple: the first fields of its envelope, then `publish_seq`, `ready_at`, lane and effective expiry (or
None); where its envelope has marks for the journal, these follow.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from godwit.core.errors import StorageCorrupt
from godwit.core.messages.envelope import Envelope

Message = tuple[Any, ...]

ENVELOPE_FIELDS: Final = Envelope.__struct_fields__.index("correlation_id")
ID: Final = 0
BODY: Final = 2
SIZE: Final = 3
TYPE: Final = 5
PRIORITY: Final = 6
KEY: Final = 7
GROUP: Final = 8
DELIVER_AT: Final = 9
SCHEDULE_ID: Final = 11
CAMPAIGN: Final = 12
REPLAY_OF: Final = 13
SEQ: Final = ENVELOPE_FIELDS
READY_AT: Final = ENVELOPE_FIELDS + 1
LANE: Final = ENVELOPE_FIELDS + 2
EXPIRY: Final = ENVELOPE_FIELDS + 3
MARKS: Final = ENVELOPE_FIELDS + 4

RUN_BYTES: Final = 256 << 10
"""A run is closed when its bodies exceed this, so that reading one message never reads much more."""
CACHE_BYTES: Final = 1 << 20

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode
astuple = msgspec.structs.astuple


def envelope_of(message: Message) -> Envelope:
    """Return the envelope as it was published."""
    return Envelope(*message[:ENVELOPE_FIELDS], *message[MARKS:])


def message_of(envelope: Envelope, seq: int, ready_at: int | None, lane: int, expiry: int | None) -> Message:
    """Return a message as it is stored."""
    message = (*astuple(envelope)[:ENVELOPE_FIELDS], seq, ready_at, lane, expiry)
    return with_marks(message, envelope) if envelope.is_marked else message


def with_marks(message: Message, envelope: Envelope) -> Message:
    """Return a message with what its envelope has for the journal."""
    return (*message, envelope.correlation_id, envelope.journal_attributes)


def find(messages: Sequence[Message], seq: int) -> Message:
    """Return the message with this publish_seq."""
    return next(message for message in messages if message[SEQ] == seq)


class Runs:
    """Runs in one database, with the last ones read kept at hand: a run never changes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._cache: dict[int, tuple[list[Message], int]] = {}
        self._cached_bytes = 0

    def write(self, last: int, messages: list[Message], *, live: int, holds: int) -> None:
        """Store a run that ends at `last`."""
        execute = self._connection.execute
        execute("INSERT INTO broker_runs VALUES (?, ?, ?, ?)", (last, len(messages), live, holds))
        encoded = _encode(messages)
        execute("INSERT INTO broker_bodies VALUES (?, ?)", (last, encoded))
        self._remember(last, messages, len(encoded))

    def read(self, last: int) -> list[Message]:
        """Return the messages of a run."""
        cached = self._cache.get(last)
        if cached is not None:
            return cached[0]
        row = self._connection.execute("SELECT messages FROM broker_bodies WHERE last = ?", (last,)).fetchone()
        if row is None:
            raise StorageCorrupt("the database", f"run {last} is missing")
        messages = _decode(row[0])
        self._remember(last, messages, len(row[0]))
        return messages

    def message(self, last: int, seq: int) -> Message:
        """Return one message of a run."""
        return find(self.read(last), seq)

    def _remember(self, last: int, messages: list[Message], size: int) -> None:
        self._cached_bytes += size
        self._cache[last] = (messages, size)
        while self._cached_bytes > CACHE_BYTES and len(self._cache) > 1:
            oldest = next(iter(self._cache))
            self._cached_bytes -= self._cache.pop(oldest)[1]

    def forget(self) -> None:
        """Empty the cache: after a rollback a run's key may come back with other messages."""
        self._cache.clear()
        self._cached_bytes = 0

    def release(self, ended: Iterable[tuple[int, int]], *, holds: bool = False) -> None:
        """Count copies out (or, with `holds`, journal chunks) by run, and delete runs that are no longer needed."""
        column = "holds" if holds else "live"
        update = f"UPDATE broker_runs SET {column} = {column} - ? WHERE last = ? RETURNING live, holds"  # noqa: S608
        for last, count in ended:
            left = self._connection.execute(update, (count, last)).fetchall()
            if left == [(0, 0)]:
                self.delete(last)

    def delete(self, last: int) -> None:
        """Remove a run."""
        self._connection.execute("DELETE FROM broker_runs WHERE last = ?", (last,))
        self._connection.execute("DELETE FROM broker_bodies WHERE last = ?", (last,))
        cached = self._cache.pop(last, None)
        if cached is not None:
            self._cached_bytes -= cached[1]

    def alive(self, last: int) -> bool:
        """Say whether any copy of the run is still open or dead."""
        row = self._connection.execute("SELECT live FROM broker_runs WHERE last = ?", (last,)).fetchone()
        return row is not None and row[0] > 0
