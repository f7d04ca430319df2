"""Looking at queues from outside: their numbers, and all their copies."""

from __future__ import annotations

from collections.abc import Sequence

from godwit.brokers.contract import GroupStats, QueueStats, Snapshot
from godwit.brokers.redis import keys
from godwit.brokers.redis.catalog import Known
from godwit.brokers.redis.reach import Reach
from godwit.core.journal import Position
from godwit.core.projection import CopyState

_GROUP_NUMBERS = 8
_COPY_FIELDS = 10


async def stats(reach: Reach, queues: Sequence[Known]) -> list[QueueStats]:
    """Say how much every queue holds."""
    answers = await reach.run_each(
        "stats",
        [
            (
                queue.name,
                (keys.step(queue.name)[0], *(key for group in queue.groups for key in keys.block(queue.name, group))),
                tuple(queue.groups),
            )
            for queue in queues
        ],
    )
    return [_stats(queue, numbers) for queue, numbers in zip(queues, answers, strict=True)]


def _stats(queue: Known, found: Sequence[int]) -> QueueStats:
    published, duplicates, *numbers = found
    groups = []
    for place, name in enumerate(queue.groups):
        at = place * _GROUP_NUMBERS
        depth, delayed, blocked, leased, dead, size, leased_bytes, dropped = numbers[at : at + _GROUP_NUMBERS]
        spec = queue.spec
        full = (spec.max_size is not None and depth >= spec.max_size) or (
            spec.max_bytes is not None and size >= spec.max_bytes
        )
        groups.append(
            GroupStats(
                name=name,
                ready=depth - delayed - blocked - leased,
                blocked=blocked,
                delayed=delayed,
                leased=leased,
                dead=dead,
                bytes=size,
                leased_bytes=leased_bytes,
                dropped=dropped,
                full=full,
            )
        )
    return QueueStats(name=queue.name, published=published, duplicates=duplicates, groups=tuple(groups))


async def snapshot(reach: Reach, queue: Known) -> Snapshot:
    """List every copy of a queue as of one position of its journal."""
    names = list(queue.groups)
    blocks = (key for group in names for key in keys.block(queue.name, group))
    epoch, seq, *facts = await reach.run("snapshot", queue.name, (*keys.step(queue.name), *blocks), (len(names),))
    copies = []
    for at in range(0, len(facts), _COPY_FIELDS):
        group, state, number, message_id, ready, attempt, failures, crashes, member, deadline = facts[
            at : at + _COPY_FIELDS
        ]
        copies.append(
            CopyState(
                queue=queue.name,
                group=names[group - 1],
                publish_seq=number,
                message_id=message_id.decode(),
                state=state.decode(),
                ready_at=ready,
                delivery_id=member.decode() or None,
                lease_until=deadline or None,
                attempt=attempt,
                failures=failures,
                crashes=crashes,
            )
        )
    return Snapshot(position=Position(epoch.decode(), seq), copies=tuple(copies))
