"""How messages look on the server: blobs, heads and the journal's rows; see `lua/_copies.lua`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from godwit.core.failures.failure import ProcessingError
from godwit.core.journal.rows import ACKED_FIELDS, HandlerOutcome, JournalRow, acked_end, acked_row, arrival_end
from godwit.core.messages.envelope import Envelope
from godwit.core.queues import LANE_OF_PRIORITY, Lane

_encode: Final = msgspec.msgpack.Encoder().encode
_Origin = str | None | tuple[str | None, str | None, str | None]
"""The message it repeats; of a message with marks for the journal that, its correlation id and its attributes."""
_STORED: Final = msgspec.msgpack.Decoder(tuple[
    int, str, str, str | None, int, int, str | None, int | None, int | None, str | None, str | None, _Origin, bytes
])  # fmt: skip
_SORTED: Final = msgspec.msgpack.Decoder(tuple[
    int,
    int, str, str, str | None, int, int, str | None, int | None, int | None, str | None, str | None, _Origin, bytes
])  # fmt: skip
_HEADED: Final = msgspec.msgpack.Decoder(tuple[
    int, int, int, int, int, int, int, int, list[str],
    int, str, str, str | None, int, int, str | None, int | None, int | None, str | None, str | None, _Origin, bytes
])  # fmt: skip
_error_encoder: Final = msgspec.json.Encoder()
_error_decoder: Final = msgspec.json.Decoder(ProcessingError)
_NIL: Final = b"\xc0"
_ARRAY: Final = 0x90
_BLOB_ARRAY: Final = b"\x9d"
_SORTED_ARRAY: Final = b"\x9e"
_HEADED_ARRAY: Final = b"\xdc\x00\x16"
_UUID_LENGTH: Final = 36
_UUID_DIGITS: Final = 32
MARKED_DIGITS: Final = 16
"""The length of what follows the dash in the ids of entries with a head or an expiry; see `lua/_copies.lua`."""

ROW_BEGINS: Final = {0: b"\x9c", 4: b"\xdc\x00\x10", 6: b"\xdc\x00\x12"}
"""The first bytes of an arrival's row, by the number of values in its lineage."""


class StoredCopy(msgspec.Struct, frozen=True):
    """A stored copy."""

    envelope: Envelope
    seq: int
    lane: int
    ready_ms: int
    attempt: int
    failures: int
    crashes: int
    errors: tuple[ProcessingError, ...]


def _origin(envelope: Envelope) -> _Origin:
    return (envelope.replay_of, envelope.correlation_id, envelope.journal_attributes)


def blob(envelope: Envelope) -> bytes:
    """Return a message as every group stores it."""
    return _encode((
        envelope.size, envelope.id, envelope.type, envelope.ordering_key, envelope.priority, envelope.created_at_ms,
        envelope.group, envelope.deliver_at_ms, envelope.expires_at_ms, envelope.schedule_id, envelope.campaign,
        envelope.replay_of if envelope.correlation_id is envelope.journal_attributes is None else _origin(envelope),
        envelope.body,
    ))[1:]  # fmt: skip


def expiring_blob(envelope: Envelope, expiry_ms: int) -> bytes:
    """Return a message that expires as `arrive.lua` takes it: its blob behind its expiry."""
    return _encode((
        expiry_ms,
        envelope.size, envelope.id, envelope.type, envelope.ordering_key, envelope.priority, envelope.created_at_ms,
        envelope.group, envelope.deliver_at_ms, envelope.expires_at_ms, envelope.schedule_id, envelope.campaign,
        envelope.replay_of if envelope.correlation_id is envelope.journal_attributes is None else _origin(envelope),
        envelope.body,
    ))[1:]  # fmt: skip


def mark(message_id: str) -> str | bytes:
    """Return an id as the dedup window remembers it: a UUID in 17 bytes, anything else as it is."""
    if len(message_id) == _UUID_LENGTH:
        digits = message_id.replace("-", "")
        if len(digits) == _UUID_DIGITS and (message_id[8] == message_id[13] == message_id[18] == message_id[23] == "-"):
            try:
                number = bytes.fromhex(digits)
            except ValueError:
                return message_id
            if number.hex() == digits:  # neither capitals nor spaces: those are other ids
                return b"\x00" + number
    return message_id


def opened(queue: str, fields: tuple[Any, ...]) -> Envelope:
    """Return the envelope of a blob's fields."""
    size, id, type, key, priority, created, group, deliver, expires, schedule, campaign, replay_of, body = fields  # noqa: A001
    if not isinstance(replay_of, tuple):
        return Envelope(
            id, queue, body, size, created, type, priority, key, group, deliver, expires, schedule, campaign, replay_of
        )
    return Envelope(
        id, queue, body, size, created, type, priority, key, group, deliver, expires, schedule, campaign, *replay_of
    )


def read_copy(queue: str, source: bytes, ref: bytes, value: bytes) -> StoredCopy:
    """Return a copy as `pull` gives it: from a lane's entry, with or without head, or from the hash."""
    if source == b"p":
        return read_headed(queue, value)
    number, _, tail = ref.partition(b"-")
    if len(tail) != MARKED_DIGITS:
        envelope = opened(queue, _STORED.decode(_BLOB_ARRAY + value))
    elif tail[:1] == b"8":
        envelope = opened(queue, _SORTED.decode(_SORTED_ARRAY + value)[1:])
        tail = tail[1:]
    else:
        return read_headed(queue, value)
    return StoredCopy(envelope, int(number), int(source), int(tail), 0, 0, 0, ())


def read_headed(queue: str, value: bytes) -> StoredCopy:
    """Return a copy stored with its head."""
    seq, lane, ready, _, attempt, failures, crashes, _, errors, *fields = _HEADED.decode(_HEADED_ARRAY + value)
    history = tuple(map(_error_decoder.decode, errors))
    return StoredCopy(opened(queue, tuple(fields)), seq, lane, ready, attempt, failures, crashes, history)


def error_text(error: ProcessingError) -> bytes:
    """Return an error as it is kept."""
    return _error_encoder.encode(error)


def lane_of(priority: int, lanes: int) -> int:
    """Return the lane of a priority."""
    return LANE_OF_PRIORITY[priority] if lanes > 1 else 0


def ordered_lane(lanes: int) -> int:
    """Return the lane of messages whose group keeps the order of their keys."""
    return Lane.MEDIUM if lanes > 1 else 0


@lru_cache(maxsize=4096)
def row_middle(type: str, priority: int, lane: int, key: str | None) -> bytes:
    """Return the middle of an arrival's row."""
    return _encode((type, priority, lane, key))[1:]


@lru_cache(maxsize=4096)
def row_end(deliver_ms: int | None, expires_ms: int | None, size: int) -> bytes:
    """Return the end of an arrival's row."""
    return _encode((deliver_ms, expires_ms, size))[1:]


def row_lineage(lineage: JournalRow, length: int) -> bytes:
    """Return what follows the end of a long row: a lineage, of as many values as the longest of its chunk."""
    return b"".join(map(_encode, lineage)) + _NIL * (length - len(lineage))


def lineage_of(envelope: Envelope, *, body: bool) -> JournalRow:
    """Return how the row of an arrival ends, from the field on that most of them lack."""
    return arrival_end(
        envelope.schedule_id, envelope.campaign, envelope.replay_of, envelope.body if body else None,
        envelope.correlation_id, envelope.journal_attributes,
    )  # fmt: skip


def ack_row(copy: StoredCopy, member: str, attempt: int, run_ms: int, ack: HandlerOutcome) -> bytes:
    """Return the journal row of an ack."""
    envelope = copy.envelope
    row = acked_row(
        envelope.id, copy.seq, member, attempt, copy.failures, copy.crashes, run_ms, envelope.type, copy.lane,
        envelope.ordering_key, ack,
    )  # fmt: skip
    return _encode(row)


def ack_end(ack: HandlerOutcome) -> bytes:
    """Return what rows of acks differ in: the first byte of the array, and the values that most acks lack."""
    end = acked_end(ack)
    return bytes((_ARRAY | ACKED_FIELDS + len(end),)) + b"".join(map(_encode, end))


packed: Final = _encode
"""Returns a value as MessagePack."""
