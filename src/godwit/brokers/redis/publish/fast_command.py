"""Messages as `arrive.lua` takes them: the fast way of publishing, for what is ready at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from godwit.brokers.redis.client.connection import Argument, packed_command
from godwit.brokers.redis.client.scripts import script
from godwit.brokers.redis.layout.codec import blob, expiring_blob, lane_of, lineage_of, mark, packed
from godwit.brokers.redis.layout.queue_config import QueueConfig
from godwit.core.messages.envelope import Envelope
from godwit.core.queues import LANE_OF_PRIORITY

_DIGITS: Final = tuple("0123456789")
_OWN_WORDS: Final = 5
"""How many words of `arrive_one.lua` are the message's own."""
_EMPTY: Final = b"$0\r\n\r\n"
STORED, STALE, EACH = 1, 0, 2
"""What the script answers: done, by old settings, or look at each."""
Call = tuple[str, Sequence[str], Sequence[Argument]]
"""A script, its keys and its arguments."""


def is_plain(queue: QueueConfig, envelope: Envelope) -> bool:
    """Say whether a message is ready at once, in every group, whatever its key."""
    return (
        envelope.deliver_at_ms is None
        and envelope.group is None
        and not (queue.ordered and envelope.ordering_key is not None)
    )


def fast_publish_command(
    queue: QueueConfig, chunk: Sequence[Envelope], before: str = "", name: str = ""
) -> Call | None:
    """Return the fast way to store a chunk, when there is one.

    `before` names a chunk without which this one is not stored, `name` this one; see `turns.py`.
    """
    if not queue.groups:
        return None
    if len(chunk) > 1:
        encoded = encode_many(queue, chunk, before, name)
    else:
        encoded = encode_one(queue, chunk[0], before) if is_plain(queue, chunk[0]) else None
    return None if encoded is None else ("arrive", *encoded)


def encode_one(queue: QueueConfig, envelope: Envelope, before: str) -> tuple[tuple[str, ...], tuple[Argument, ...]]:
    """Return keys and arguments for one message; nothing can name it as the chunk before."""
    lane = lane_of(envelope.priority, queue.spec.lanes)
    expiry_ms = envelope.expiry_ms(queue.ttl_ms)
    marked = mark(envelope.id)
    max_size, max_bytes, _, window = queue.limits
    row = _row(queue, envelope, marked, lane, expiry_ms)
    digit = _DIGITS[lane]
    return queue.arrival_keys(digit), (
        queue.version,
        packed((1, envelope.size, window, max_size, max_bytes, before, ""))[1:],
        digit,
        b"",
        packed((expiry_ms,)) if expiry_ms else b"",
        packed(_chunk(queue, row)),
        *queue.groups,
        *((marked,) if window else ()),
        expiring_blob(envelope, expiry_ms) if expiry_ms else blob(envelope),
    )


def packed_one(queue: QueueConfig, envelope: Envelope, now: str) -> bytes:
    """Return the whole command of `arrive_one.lua`; all but the message itself is the same every time."""
    ttl_ms = queue.ttl_ms
    lane = LANE_OF_PRIORITY[envelope.priority] if queue.spec.lanes > 1 else 0
    expiry_ms = envelope.expiry_ms(ttl_ms) if ttl_ms or envelope.expires_at_ms is not None else 0
    marked = mark(envelope.id)
    row = packed(_chunk(queue, _row(queue, envelope, marked, lane, expiry_ms)))
    if not queue.limits[3]:
        marked = b""
    elif isinstance(marked, str):
        marked = marked.encode()
    size = b"%d" % envelope.size
    if expiry_ms:
        expiry, body = b"%d" % expiry_ms, expiring_blob(envelope, expiry_ms)
    else:
        expiry, body = b"", blob(envelope)
    opening = queue.openings.get(lane)
    if opening is None or now:
        opening = queue.openings[lane] = _opening(queue, _DIGITS[lane], now)
    return b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
        opening, len(size), size, len(expiry), expiry, len(row), row, len(marked), marked, len(body), body,
    )  # fmt: skip


def _opening(queue: QueueConfig, digit: str, now: str) -> bytes:
    """Return the command of `arrive_one.lua` up to what differs from message to message."""
    max_size, max_bytes, _, window = queue.limits
    limits = packed((max_size, max_bytes))[1:] if max_size or max_bytes else b""
    names, (group,) = queue.arrival_keys(digit), queue.groups
    words: list[Argument] = ["EVALSHA", script("arrive_one").sha, len(names), *names]
    words += [now, queue.name, queue.version, group, f"g:{group}", window, limits, digit]
    whole = packed_command((*words, *[b""] * _OWN_WORDS))
    return whole[: -_OWN_WORDS * len(_EMPTY)]


def encode_many(
    queue: QueueConfig, chunk: Sequence[Envelope], before: str, name: str
) -> tuple[tuple[str, ...], tuple[Argument, ...]] | None:
    """Return keys and arguments for a chunk, or None when `publish.lua` has to look at each message."""
    lanes_there, ttl_ms, ordered = queue.spec.lanes, queue.ttl_ms, queue.ordered
    max_size, max_bytes, _, window = queue.limits
    used: dict[int, str] = {}
    places: list[str] = []
    expiries: list[int] = []
    rows: list[tuple[object, ...]] = []
    marks: list[str | bytes] = []
    blobs: list[bytes] = []
    total = 0
    brief, alike = not queue.keeps_body, lanes_there == 1
    for envelope in chunk:
        key, priority, size = envelope.ordering_key, envelope.priority, envelope.size
        if envelope.deliver_at_ms is not None or envelope.group is not None or (ordered and key is not None):
            return None  # as `is_plain` says, without its call
        lane = 0 if alike else LANE_OF_PRIORITY[priority]
        place = used.get(lane)
        if place is None:
            place = used[lane] = _DIGITS[len(used) + 1]
        places.append(place)
        if envelope.expires_at_ms is None:
            expiry_ms = envelope.created_at_ms + ttl_ms if ttl_ms else 0  # as `expiry_ms` says
        else:
            expiry_ms = envelope.expiry_ms(ttl_ms)
        expiries.append(expiry_ms)
        blobs.append(expiring_blob(envelope, expiry_ms) if expiry_ms else blob(envelope))
        marked = mark(envelope.id)
        marks.append(marked)
        row = (marked, envelope.type, priority, lane, key, expiry_ms, size)
        rows.append(
            row
            if brief
            and not (
                envelope.schedule_id
                or envelope.campaign
                or envelope.replay_of
                or envelope.correlation_id
                or envelope.journal_attributes
            )
            else row + lineage_of(envelope, body=not brief)
        )
        total += size
    if window and len(set(marks)) < len(marks):
        return None
    digits = "".join([_DIGITS[lane] for lane in used])
    return queue.arrival_keys(digits), (
        queue.version,
        packed((len(chunk), total, window, max_size, max_bytes, before, name))[1:],
        digits,
        "".join(places) if len(used) > 1 else b"",
        packed(expiries) if any(expiries) else b"",
        packed(_chunk(queue, *rows) if queue.app_version else rows),
        *queue.groups,
        *(marks if window else ()),
        *blobs,
    )


def _chunk(queue: QueueConfig, *rows: tuple[object, ...]) -> tuple[object, ...]:
    """Return the rows of a compact chunk, behind the application's version where it has one."""
    return rows if queue.app_version is None else (queue.app_version, *rows)


def _row(queue: QueueConfig, envelope: Envelope, marked: str | bytes, lane: int, expiry_ms: int) -> tuple[object, ...]:
    """Return a message's row of the journal; see `compact.py`."""
    row = (marked, envelope.type, envelope.priority, lane, envelope.ordering_key, expiry_ms, envelope.size)
    return row + lineage_of(envelope, body=queue.keeps_body)
