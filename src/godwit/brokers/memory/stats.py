"""Looking at a group from outside: its copies, its state, its numbers."""

from __future__ import annotations

from collections.abc import Iterator

from godwit.brokers.contract import GroupStats
from godwit.brokers.memory.group import DEAD, LEASED, MemoryCopy, MemoryGroup
from godwit.core.journal.projection import CopyState
from godwit.core.queues import QueueSpec


def all_copies(group: MemoryGroup) -> Iterator[MemoryCopy]:
    """Give every copy a group holds, the dead ones last."""
    for newest in group.by_id.values():
        copy: MemoryCopy | None = newest
        while copy is not None:
            yield copy
            copy = copy.twin
    yield from group.letters.values()


def copy_state(copy: MemoryCopy) -> CopyState:
    """Return a copy as a snapshot lists it."""
    leased = copy.place == LEASED
    return CopyState(
        queue=copy.group.queue,
        group=copy.group.name,
        publish_seq=copy.seq,
        message_id=copy.envelope.id,
        state="leased" if leased else "dead" if copy.place == DEAD else "waiting",
        ready_at=copy.ready_ms,
        delivery_id=copy.token if leased else None,
        lease_until=copy.deadline_ms if leased else None,
        attempt=copy.attempt,
        failures=copy.failures,
        crashes=copy.crashes,
    )


def group_stats(spec: QueueSpec, group: MemoryGroup) -> GroupStats:
    """Say how much a group holds."""
    full = (spec.max_size is not None and group.depth >= spec.max_size) or (
        spec.max_bytes is not None and group.bytes >= spec.max_bytes
    )
    return GroupStats(
        name=group.name,
        ready=group.ready,
        blocked=group.blocked,
        delayed=group.delayed_count,
        leased=group.leased,
        dead=len(group.letters),
        bytes=group.bytes,
        leased_bytes=group.leased_bytes,
        dropped=group.dropped,
        full=full,
    )
