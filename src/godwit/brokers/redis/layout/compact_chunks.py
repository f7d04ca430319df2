"""Chunks of the journal as the fast scripts store them, without what follows from the rest.

Both kinds are written out in full when they are read: no reader sees the short form.

* `[2, epoch, first_seq, at, queue, first publish_seq, [group, depth, ...], rows]`, by `arrive.lua`: messages that are
  ready at once, for every group. A row is `[id, type, priority, lane, ordering key, expiry, size]`, where lineage or
  body or marks are kept followed by these; an id that is a UUID is 17 bytes (see `codec.mark`). The application's
  version comes before the first row, where it has one.
* `[3, epoch, first_seq, at, queue, group, worker, depth, token, lease_until, rows]`, by `pull.lua`: first deliveries. A
  row is `[lane and entry, size, id, type, ordering key]`; with the application's version, `worker` is both of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import msgspec

from godwit.core.journal.chunks import encode_chunk
from godwit.core.journal.rows import arrival_row, delivered_row
from godwit.core.journal.vocabulary import Event

_ARRIVED: Final = 2
_DELIVERED: Final = 3
_SORTED_DIGITS: Final = 16
_MISSING: Final = {0: (None,) * 6, 4: (None,) * 2, 6: ()}
"""What a row of an arrival leaves out, by the number of values in its lineage."""
_NO_LINEAGE: Final = _MISSING[0]
_decode: Final = msgspec.msgpack.Decoder().decode


class _Beginning(msgspec.Struct, frozen=True, array_like=True):
    """What every kind of chunk begins with."""

    kind: int
    epoch: str
    first_seq: int


_begin: Final = msgspec.msgpack.Decoder(_Beginning).decode


def first_seq(chunk: bytes) -> int:
    """Return the seq of a stored chunk's first row."""
    return _begin(chunk).first_seq


def written_out(chunk: bytes, after: int, last: int) -> Iterator[tuple[int, bytes]]:
    """Give a stored chunk, whose last row is `last`, as chunks of the journal with rows beyond `after`.

    Each comes with the seq of its own last row: a reader may want no more than the first of them.
    """
    kind = chunk[1]  # after the byte that says how many fields there are
    if kind == _ARRIVED:
        yield from _arrived(after, *_decode(chunk))
    else:
        yield last, _delivered(*_decode(chunk)) if kind == _DELIVERED else chunk


def _arrived(
    after: int,
    _kind: int,
    epoch: str,
    seq: int,
    at: int,
    queue: str,
    number: int,
    holders: list[Any],
    rows: list[Any],
) -> Iterator[tuple[int, bytes]]:
    names, depths = holders[::2], holders[1::2]
    version = rows.pop(0) if isinstance(rows[0], str) else None
    for copy, (group, depth) in enumerate(zip(names, depths, strict=True)):
        first, seq = seq, seq + len(rows)
        if seq - 1 <= after:
            continue
        full = []
        for place, (stored, kind, priority, lane, key, expiry, size, *end) in enumerate(rows, number):
            lineage = (*end, *_MISSING[len(end)]) if end else _NO_LINEAGE
            full.append(
                arrival_row(
                    _id(stored), place, copy, len(names), kind, priority, lane, key, at, None, expiry or None, size,
                    *lineage,
                )
            )  # fmt: skip
        yield seq - 1, encode_chunk(epoch, first, at, Event.ENQUEUED, queue, group, None, depth, full, None, version)


def _id(stored: str | bytes) -> str:
    return stored if isinstance(stored, str) else str(UUID(bytes=stored[1:]))


def _delivered(
    _kind: int,
    epoch: str,
    seq: int,
    at: int,
    queue: str,
    group: str,
    worker: str | list[str],
    depth: int,
    token: str,
    lease_until: int,
    rows: list[list[Any]],
) -> bytes:
    full = []
    name, version = (worker, None) if isinstance(worker, str) else worker
    for place, _, message_id, kind, key in rows:
        number, _, tail = place[1:].partition("-")
        ready_at = int(tail[1:] if len(tail) == _SORTED_DIGITS else tail)
        full.append(
            delivered_row(
                message_id, int(number), f"{place}:{token}", 1, 0, 0, lease_until, at - ready_at, kind, int(place[0]),
                key,
            )
        )  # fmt: skip
    return encode_chunk(epoch, seq, at, Event.DELIVERED, queue, group, name, depth, full, None, version)
