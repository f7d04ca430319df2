"""Ending the time in which a grown queue still looks at where keys were before."""

from __future__ import annotations

import msgspec

from godwit.brokers.redis.client.script_runner import ScriptRunner
from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.layout.catalog import Catalog
from godwit.brokers.redis.layout.partitions import partition_of
from godwit.brokers.redis.layout.queue_config import QueueConfig
from godwit.core.clock import milliseconds


async def finish_repartitioning(reach: ScriptRunner, catalog: Catalog, queue: QueueConfig) -> bool:
    """Forget how a queue was laid out before, when no old partition has anything of a key that moved.

    Neither as a message whose order counts nor as an id that is still remembered. What is gone there never comes back,
    so looking at one partition after the other is enough.
    """
    ordered = [group for group, spec in queue.groups.items() if spec.message_ordering]
    window_ms = milliseconds(queue.spec.dedup_window)
    for partition in range(max(queue.spec.older)):
        heads = (keys.block(queue.name, group, partition)[keys.GROUP_PARTS.index("heads")] for group in ordered)
        names = (*keys.step(queue.name, partition), keys.part(queue.name, "later", partition), *heads)
        now_ms, grown_ms, latest_ms, *held = await reach.run("grown", queue.name, names, ())
        if now_ms < max(grown_ms + window_ms, latest_ms):
            return False
        if any(partition_of(key.decode(), queue.spec.partitions) != partition for key in held):
            return False
    await catalog.relay(queue, msgspec.structs.replace(queue.spec, older=()))
    return True
