"""Which partition of a queue has a message, also while the queue is growing.

A message is placed by its ordering key, else by its id; of ids made here by their family, so that messages that were
made together are stored together, with one script call instead of one for each partition. A checksum gives one of
`BUCKETS`, and a table says which partition has that. The table is consistent: a queue that grows sends keys from old
partitions to new ones only, never from one old partition to another, so the numbers of a key's messages (`publish_seq`)
go on growing when it moves: those of partition `p` begin at `p * SPAN`.

A key that is to move does so when its old partition has nothing of it any more: until then a publish first asks there.
The script answers in one step, and what is not held there by then never is again, since nothing else brings it back. So
one partition at a time has the messages of a key, in the order they were published. Ids that the old partition
remembers are recognised on the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final
from zlib import crc32

from godwit.core.messages.envelope import Envelope
from godwit.core.names import family_of
from godwit.core.queues import QueueSpec

BUCKETS: Final = 4_096
"""Many more than a queue may have partitions."""
_FACTOR: Final = 0x9E37_79B1
_SHIFT: Final = 20


class LaidMessages(QueueSpec, frozen=True, kw_only=True, omit_defaults=True):
    """A queue's settings with how it is laid out.

    `older` are the numbers of partitions it had before, as long as they may matter. `born` tells a queue from an
    earlier one of its name, of which a partition may have something left.
    """

    older: tuple[int, ...] = ()
    born: str = ""


@cache
def homes(partitions: int) -> tuple[tuple[int, ...], ...]:
    """Return the partition of each bucket, as the path of a key that has never been elsewhere.

    A partition that is added takes its share of the buckets from those that were there before, so that all have about
    as many.
    """
    held = [list(range(BUCKETS))]
    for count in range(2, partitions + 1):
        taken: list[int] = []
        fewest = BUCKETS // count
        for buckets in sorted(held, key=len, reverse=True):
            while len(buckets) > fewest and len(taken) < fewest:
                taken.append(buckets.pop())
        held.append(taken)
    table = [(0,)] * BUCKETS
    for partition, buckets in enumerate(held):
        for bucket in buckets:
            table[bucket] = (partition,)
    return tuple(table)


def bucket_of(key: str) -> int:
    """Return the bucket of a key; the factor spreads the checksums of keys that differ in a digit."""
    return (crc32(key.encode()) * _FACTOR & 0xFFFF_FFFF) >> _SHIFT


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key."""
    return homes(partitions)[bucket_of(key)][0]


def routing_key(envelope: Envelope) -> str:
    """Return what decides a message's partition."""
    return family_of(envelope.id) if envelope.ordering_key is None else envelope.ordering_key


def path_of(key: str, spec: LaidMessages) -> tuple[int, ...]:
    """Return the partitions to try, one after the other: where the key was before, then where it belongs."""
    home = partition_of(key, spec.partitions)
    if not spec.older:
        return (home,)
    return tuple(dict.fromkeys((*(partition_of(key, count) for count in spec.older), home)))


def by_path(
    envelopes: Sequence[Envelope], indexes: Iterable[int], spec: LaidMessages
) -> dict[tuple[int, ...], list[int]]:
    """Sort messages by the partitions to try, each part in the order of the call."""
    parts: dict[tuple[int, ...], list[int]] = {}
    if spec.older:
        for index in indexes:
            parts.setdefault(path_of(routing_key(envelopes[index]), spec), []).append(index)
        return parts
    table = homes(spec.partitions)
    for index in indexes:  # the same with fewer calls: this is the way of every publish
        envelope = envelopes[index]
        key = envelope.ordering_key
        path = table[bucket_of(family_of(envelope.id) if key is None else key)]
        if path in parts:
            parts[path].append(index)
        else:
            parts[path] = [index]
    return parts


def share(limit: int | None, partitions: int) -> int:
    """Return the part of a limit that each partition has, 0 when there is no limit."""
    return max(limit // partitions, 1) if limit is not None else 0
