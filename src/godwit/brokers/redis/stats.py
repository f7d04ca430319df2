"""Looking at queues from outside: their numbers, and all their copies."""

from __future__ import annotations

from collections.abc import Sequence

from godwit.brokers.contract import GroupStats, QueueStats, Snapshot
from godwit.brokers.redis.client.script_runner import ScriptRunner
from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.layout.queue_config import QueueConfig
from godwit.core.journal.projection import CopyState
from godwit.core.journal.shards import Position
from godwit.core.names import QueueName

_GROUP_NUMBERS = 8
_COPY_FIELDS = 10


async def stats(reach: ScriptRunner, queues: Sequence[QueueConfig]) -> list[QueueStats]:
    """Say how much every queue holds."""
    asked = [(queue, partition) for queue in queues for partition in queue.partitions]
    answers = await reach.run_each("stats", [_question(queue, partition) for queue, partition in asked])
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    if failed and len(failed) == len(answers):
        raise failed[0]
    each = iter(answers)
    # A queue's numbers are the sums over its partitions; one that cannot be asked is left out.
    parts = [(queue, [next(each) for _ in queue.partitions]) for queue in queues]
    return [
        _stats(queue, _sum(found)) for queue, found in parts if not any(isinstance(one, BaseException) for one in found)
    ]


def _question(queue: QueueConfig, partition: int) -> tuple[QueueName, tuple[str, ...], tuple[str, ...]]:
    """Return queue, keys and arguments of `stats.lua`."""
    blocks = (key for group in queue.groups for key in keys.block(queue.name, group, partition))
    return queue.name, (keys.step(queue.name, partition)[0], *blocks), tuple(queue.groups)


def _sum(answers: list[list[int]]) -> list[int]:
    return answers[0] if len(answers) == 1 else [sum(numbers) for numbers in zip(*answers, strict=True)]


def _stats(queue: QueueConfig, found: Sequence[int]) -> QueueStats:
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


async def snapshot(reach: ScriptRunner, queue: QueueConfig, partition: int) -> Snapshot:
    """List every copy of a partition as of one position of its journal."""
    names = list(queue.groups)
    blocks = (key for group in names for key in keys.block(queue.name, group, partition))
    step = keys.step(queue.name, partition)
    epoch, seq, *facts = await reach.run("snapshot", queue.name, (*step, *blocks), (len(names),))
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
