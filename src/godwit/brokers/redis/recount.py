"""Counters and indexes that disagree with what is stored: counted anew by `recount.lua`, and what was mended so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from godwit.brokers.redis.client.script_runner import ScriptRunner, answered
from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.layout.queue_config import QueueConfig
from godwit.core.logs import get_logger
from godwit.core.names import GroupName, QueueName

log = get_logger(__name__)


class Mended(NamedTuple):
    """What was mended in one partition of a group since it was created, and whether more waits for `maintain`."""

    queue: QueueName
    group: GroupName
    partition: int
    corrections: int
    at_ms: int
    what: str
    """What was wrong the last time."""
    pending: bool


async def recount_group(reach: ScriptRunner, queue: QueueConfig, group: GroupName) -> int:
    """Count a group of one partition anew; return how much was put right."""
    names = (*keys.step(queue.name, queue.partition), *keys.block(queue.name, group, queue.partition))
    corrections, what = await reach.run("recount", queue.name, names, (group,))
    if corrections:
        log.error(
            "counters did not agree with what is stored and were counted anew",
            queue=queue.name,
            group=group,
            partition=queue.partition,
            corrections=corrections,
            what=what.decode(),
        )
    return int(corrections)


async def mended_groups(reach: ScriptRunner, queues: Sequence[QueueConfig]) -> list[Mended]:
    """Return the groups in which something was mended, or is to be."""
    places = [(queue.name, group, at) for queue in queues for group in queue.groups for at in queue.partitions]
    asked = [
        ("HMGET", keys.block(queue, group, at)[0], "mended", "mended_at", "mended_what", "recount")
        for queue, group, at in places
    ]
    found = []
    for index, (count, at_ms, what, pending) in answered(await reach.ask_each(*asked)):
        if count is not None or pending is not None:
            words = (what or b"").decode()
            found.append(Mended(*places[index], int(count or 0), int(at_ms or 0), words, pending is not None))
    return found
