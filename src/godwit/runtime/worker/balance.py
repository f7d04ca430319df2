"""How the members of a group share its work, as credits: how many messages one member may hold at once.

* `least_connections`: as many as it has free slots; a free member takes the next.
* `round_robin`: all members the same: the group's cap divided by their number, else what the smallest of them can do.
* `weighted`: the group's cap in proportion to the members' concurrency, else all its own slots.

The cap itself (`max_concurrency`) is kept by the broker, over all workers, whatever the credits say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from godwit.brokers.contract import Place
from godwit.core.settings import LoadBalancing
from godwit.runtime.worker.consumer import Consumer
from godwit.runtime.worker.heartbeat import ConsumerInstance, InstanceStatus

Members = Callable[[str], Awaitable[list[ConsumerInstance]]]
"""Returns the instances of a queue."""


class Share(msgspec.Struct, frozen=True):
    """A member's name and how many messages it could handle at once."""

    name: str
    concurrency: int


def credits_of(mine: Share, members: Sequence[Share], balancing: LoadBalancing, cap: int | None) -> int:
    """Return how many messages a member may hold, at least one; `members` has all that are alive."""
    instances = sorted({mine, *members}, key=lambda one: one.name)
    if balancing is LoadBalancing.LEAST_CONNECTIONS:
        return mine.concurrency
    if cap is None:
        smallest = min(instance.concurrency for instance in instances)
        return smallest if balancing is LoadBalancing.ROUND_ROBIN else mine.concurrency
    weights = [1 if balancing is LoadBalancing.ROUND_ROBIN else instance.concurrency for instance in instances]
    return max(1, min(mine.concurrency, _portions(cap, weights)[instances.index(mine)]))


def _portions(cap: int, weights: Sequence[int]) -> list[int]:
    """Divide a cap by weights into whole numbers that add up to it; what is left goes to the largest fractions."""
    total = sum(weights)
    portions = [cap * weight // total for weight in weights]
    by_fraction = sorted(range(len(weights)), key=lambda place: -(cap * weights[place] % total))
    for place in by_fraction[: cap - sum(portions)]:
        portions[place] += 1
    return portions


class Credits:
    """The credits of one consumer of one worker, as far as it knows the other members."""

    def __init__(self, consumer: Consumer, worker: str, members: Members) -> None:
        self._consumer = consumer
        self._members = members
        self._mine = Share(worker, consumer.concurrency)
        self._place: Final[Place] = (consumer.queues[0], consumer.group)
        self.now = self._of([])

    async def refresh(self) -> bool:
        """Count the members anew; say whether we may hold more than before."""
        if self._consumer.load_balancing is LoadBalancing.LEAST_CONNECTIONS:
            return False
        queue, group = self._place
        alive = [
            Share(member.id, member.concurrency)
            for member in await self._members(queue)
            if member.group == group
            and member.status is InstanceStatus.ACTIVE
            and member.concurrency
            and member.id != self._mine.name
        ]
        before, self.now = self.now, self._of(alive)
        return self.now > before

    def _of(self, others: Sequence[Share]) -> int:
        return credits_of(self._mine, others, self._consumer.load_balancing, self._consumer.max_concurrency)
