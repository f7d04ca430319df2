"""Shards: the journal of one partition of a queue, positions in it, and the numbers its messages can have."""

from __future__ import annotations

from typing import Final

import msgspec

from godwit.core.names import is_name

_PARTITION_DIGITS: Final = 3
SPAN: Final = 1 << 36
"""How many `publish_seq` a partition of a queue has: those of partition `p` begin after `p * SPAN`."""


class Position(msgspec.Struct, frozen=True, order=True):
    """A place in a shard: everything up to and including `seq` of the journal called `epoch`."""

    epoch: str
    seq: int


def shard_name(queue: str, partition: int = 0) -> str:
    """Return the name of the journal of one partition of a queue."""
    return f"{queue}#{partition}"


def shard_parts(shard: str) -> tuple[str, int] | None:
    """Return queue and partition of a shard's name; None when it cannot be one."""
    queue, _, number = shard.rpartition("#")
    if not is_name(queue) or not number.isdecimal() or len(number) > _PARTITION_DIGITS or str(int(number)) != number:
        return None
    return queue, int(number)


def numbers_of(shard: str) -> range:
    """Return the `publish_seq` that messages of a shard can have."""
    _, partition = shard_parts(shard) or ("", 0)
    return range(partition * SPAN + 1, (partition + 1) * SPAN + 1) if partition else range(SPAN + 1)
