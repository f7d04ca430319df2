"""The census: what the journal does not tell, pauses and heartbeats, written to the state tables now and then."""

from __future__ import annotations

from godwit.admin.control import holds
from godwit.brokers.contract import Broker
from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.journal.changes import Census, MemberState
from godwit.runtime.worker.heartbeat import instances
from godwit.store.contract import Messages


async def take_census(broker: Broker, messages: Messages, clock: Clock = SYSTEM_CLOCK) -> Census:
    """Write down which queues and groups are held back and how the members of groups are."""
    held = await holds(broker.shared)
    queues: dict[str, str] = {}
    groups: dict[tuple[str, str], str] = {}
    for queue in await broker.stats():
        draining, paused = held.draining(queue.name), held.paused(queue.name)
        queues[queue.name] = "draining" if draining else "paused" if paused else "active"
        for group in queue.groups:
            groups[queue.name, group.name] = "paused" if held.paused(queue.name, group.name) else "active"
    members = [
        MemberState(instance.queue, instance.group, instance.id, instance.status.value, instance.last_heartbeat_ms)
        for instance in await instances(broker.shared, clock)
    ]
    census = Census(queues, groups, members)
    await messages.note(census)
    return census
