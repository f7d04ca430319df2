"""Taking ready copies out of a group's lanes, in delivery order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop

from godwit.brokers.memory.group import READY, MemoryCopy, MemoryGroup
from godwit.core.queues import LOWEST_FIRST_EVERY


def _lane_order(group: MemoryGroup) -> Iterable[int]:
    highest_first = range(len(group.lanes) - 1, -1, -1)
    return reversed(highest_first) if group.pulls % LOWEST_FIRST_EVERY == LOWEST_FIRST_EVERY - 1 else highest_first


def deliverable(group: MemoryGroup) -> int:
    """Return how many copies a pull could take: ready ones, as far as flow control leaves room."""
    flow = group.spec.flow_control
    if flow.max_bytes is not None and group.leased and group.leased_bytes >= flow.max_bytes:
        return 0
    return group.ready if flow.max_messages is None else max(0, min(group.ready, flow.max_messages - group.leased))


def take(group: MemoryGroup, limit: int) -> list[MemoryCopy]:
    """Take up to `limit` ready copies, in delivery order."""
    taken: list[MemoryCopy] = []
    for lane in _lane_order(group):
        again, fresh = group.again[lane], group.lanes[lane]
        while again and len(taken) < limit:
            copy = heappop(again)[1]
            if copy.place == READY:
                taken.append(copy)
            else:
                group.marked -= 1
        while fresh and len(taken) < limit:
            copy = fresh.popleft()
            if copy.place == READY:
                taken.append(copy)
            else:
                group.marked -= 1
        if len(taken) == limit:
            break
    return taken


def _peek(group: MemoryGroup, lane: int) -> MemoryCopy | None:
    """Return the next copy of a lane, dropping marked ones on the way."""
    again, fresh = group.again[lane], group.lanes[lane]
    while again:
        if again[0][1].place == READY:
            return again[0][1]
        heappop(again)
        group.marked -= 1
    while fresh:
        if fresh[0].place == READY:
            return fresh[0]
        fresh.popleft()
        group.marked -= 1
    return None


def _pop(group: MemoryGroup, lane: int) -> None:
    """Take off what `_peek` returned."""
    if group.again[lane]:
        heappop(group.again[lane])
    else:
        group.lanes[lane].popleft()


def take_within(group: MemoryGroup, limit: int, max_bytes: int | None) -> Iterator[MemoryCopy]:
    """Take ready copies as long as they fit the call's and the group's byte limits."""
    flow_bytes = group.spec.flow_control.max_bytes
    taken = taken_bytes = 0
    for lane in _lane_order(group):
        while taken < limit and (copy := _peek(group, lane)) is not None:
            size = copy.envelope.size
            if max_bytes is not None and taken and taken_bytes + size > max_bytes:
                return
            in_flight = group.leased_bytes + taken_bytes
            if flow_bytes is not None and (group.leased or taken) and in_flight + size > flow_bytes:
                return
            taken, taken_bytes = taken + 1, taken_bytes + size
            _pop(group, lane)
            yield copy
