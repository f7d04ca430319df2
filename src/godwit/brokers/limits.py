"""A group's limits, counted the same way by every broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from godwit.core.errors import QueueFull
from godwit.core.messages.envelope import Envelope
from godwit.core.queues import GroupSpec, Overflow, QueueSpec

NO_LIMIT: Final = 1 << 62


class Fill(msgspec.Struct, frozen=True):
    """How full a group is."""

    depth: int
    bytes: int
    delayed: int


def fits(spec: QueueSpec, fill: Fill, count: int, size: int, *, delayed: int | None = None) -> bool:
    """Say whether `count` messages of `size` bytes fit for sure, without looking at each.

    `delayed` is for brokers that know how many wait for their time without counting; otherwise all might.
    """
    return (
        fill.depth + count <= (spec.max_size or NO_LIMIT)
        and fill.bytes + size <= (spec.max_bytes or NO_LIMIT)
        and (fill.depth if delayed is None else delayed) + count <= (spec.max_delayed or NO_LIMIT)
    )


def misfits(
    spec: QueueSpec, group: GroupSpec, fill: Fill, fresh: Sequence[Envelope], now_ms: int, *, moved: bool
) -> list[int]:
    """Return the indexes of what a group must drop; raise `QueueFull` when it is full and refuses.

    What is `moved` from another queue is never dropped.
    """
    max_size = spec.max_size or NO_LIMIT
    max_bytes = spec.max_bytes or NO_LIMIT
    max_delayed = spec.max_delayed or NO_LIMIT
    depth, size, delayed = fill.depth, fill.bytes, fill.delayed
    dropped = []
    for index, envelope in enumerate(fresh):
        if envelope.group is not None and envelope.group != group.name:
            continue
        later = envelope.deliver_at_ms is not None and envelope.deliver_at_ms > now_ms
        if depth >= max_size:
            limit, allowed = "max_size", max_size
        elif size + envelope.size > max_bytes:
            limit, allowed = "max_bytes", max_bytes
        elif later and delayed >= max_delayed:
            limit, allowed = "max_delayed", max_delayed
        else:
            depth, size, delayed = depth + 1, size + envelope.size, delayed + later
            continue
        if moved or group.overflow is Overflow.REFUSE:
            raise QueueFull(spec.name, group.name, limit, allowed)
        dropped.append(index)
    return dropped
