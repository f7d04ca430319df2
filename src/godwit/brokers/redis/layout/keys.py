"""The names of the keys; all those of one queue and partition share a hash tag, so that one script may use them.

The tag of partition 0 is the queue's name itself: a plain key of that name, the inbox, is in the same slot. The tags of
further partitions hold a `#`, which no queue's name has, so that they cannot be those of another queue.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

QUEUES: Final = "godwit:queues"
"""Every queue that is declared, by the order in which they were created (a sorted set)."""
REMOVED: Final = "godwit:removed"
"""Removed queues whose journals may have rows, by the time at which to look there next (a sorted set)."""
CREATED: Final = "godwit:created"
"""How many queues were created: the next one's place in that order."""
SHARED: Final = ("godwit:{#shared}:values", "godwit:{#shared}:names", "godwit:{#shared}:ends")
"""The shared values (a hash), their keys in order, and when they end (sorted sets); no queue's name has a `#`."""

GROUP_PARTS: Final = (
    "group", "l0", "l1", "l2", "l3", "parked", "again", "delayed", "blocked", "heads", "leases", "batches", "expiring",
    "letters", "wake",
)  # fmt: skip
"""What a group keeps, in the order in which scripts take it."""


def tag(queue: str, partition: int = 0) -> str:
    """Return the hash tag of one partition of a queue."""
    return f"{{{queue}#{partition}}}" if partition else f"{{{queue}}}"


def inbox(queue: str, partition: int = 0) -> str:
    """Return the stream to which producers in other languages add; further partitions have an empty name for it."""
    return queue if partition == 0 else part(queue, "inbox", partition)


@lru_cache(maxsize=4096)
def part(queue: str, name: str, partition: int = 0) -> str:
    """Return the key of something that a queue has once."""
    return f"godwit:{tag(queue, partition)}:{name}"


@lru_cache(maxsize=4096)
def block(queue: str, group: str, partition: int = 0) -> tuple[str, ...]:
    """Return the keys of a group."""
    return tuple(f"godwit:{tag(queue, partition)}:{name}:{group}" for name in GROUP_PARTS)


@lru_cache(maxsize=4096)
def step(queue: str, partition: int = 0) -> tuple[str, str]:
    """Return the two keys that every step of a queue takes: its counters and its journal."""
    return part(queue, "meta", partition), part(queue, "journal", partition)


@lru_cache(maxsize=4096)
def publishing(queue: str, groups: tuple[str, ...], partition: int = 0) -> tuple[str, ...]:
    """Return all keys of a publish."""
    blocks = (key for group in groups for key in block(queue, group, partition))
    return (*step(queue, partition), *arrivals(queue, partition), *blocks)


@lru_cache(maxsize=4096)
def arrivals(queue: str, partition: int = 0) -> tuple[str, ...]:
    """Return the keys that arrivals need beside those: ids of the dedup window, and the inbox."""
    return (*(part(queue, name, partition) for name in ("dedup0", "dedup1", "later")), inbox(queue, partition))


def wake(queue: str, group: str, partition: int = 0) -> str:
    """Return the key whose marker says that something may be ready."""
    return block(queue, group, partition)[-1]
