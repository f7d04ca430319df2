"""Which partition of a queue has a message, also while the queue is growing.

A message is placed by its ordering key, else by its id. The hash is consistent: a queue that grows sends keys from old
partitions to new ones only, never from one old partition to another, so the numbers of a key's messages
(`publish_seq`) go on growing when it moves: those of partition `p` begin at `p * SPAN`.

A key that is to move does so when its old partition has nothing of it any more: until then a publish first asks there.
The script answers in one step, and what is not held there by then never is again, since nothing else brings it back. So
one partition at a time has the messages of a key, in the order they were published. Ids that the old partition
remembers are recognised on the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

from godwit.core.envelope import Envelope
from godwit.core.queues import QueueSpec

_MASK: Final = (1 << 64) - 1


class Laid(QueueSpec, frozen=True, kw_only=True, omit_defaults=True):
    """A queue's settings with how it is laid out.

    `older` are the numbers of partitions it had before, as long as they may matter. `born` tells a queue from an
    earlier one of its name, of which a partition may have something left.
    """

    older: tuple[int, ...] = ()
    born: str = ""


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key (Lamping and Veach, A Fast, Minimal Memory, Consistent Hash Algorithm)."""
    if partitions == 1:
        return 0
    state = int.from_bytes(blake2b(key.encode(), digest_size=8).digest())
    at, jump = -1, 0
    while jump < partitions:
        at = jump
        state = (state * 2_862_933_555_777_941_757 + 1) & _MASK
        jump = int((at + 1) * ((1 << 31) / ((state >> 33) + 1)))
    return at


def routing_key(envelope: Envelope) -> str:
    """Return what decides a message's partition."""
    return envelope.id if envelope.ordering_key is None else envelope.ordering_key


def path_of(key: str, spec: Laid) -> tuple[int, ...]:
    """Return the partitions to try, one after the other: where the key was before, then where it belongs."""
    home = partition_of(key, spec.partitions)
    if not spec.older:
        return (home,)
    return tuple(dict.fromkeys((*(partition_of(key, count) for count in spec.older), home)))


def by_path(envelopes: Sequence[Envelope], indexes: Iterable[int], spec: Laid) -> dict[tuple[int, ...], list[int]]:
    """Sort messages by the partitions to try, each part in the order of the call."""
    parts: dict[tuple[int, ...], list[int]] = {}
    for index in indexes:
        parts.setdefault(path_of(routing_key(envelopes[index]), spec), []).append(index)
    return parts


def share(limit: int | None, partitions: int) -> int:
    """Return the part of a limit that each partition has, 0 when there is no limit."""
    return max(limit // partitions, 1) if limit is not None else 0
