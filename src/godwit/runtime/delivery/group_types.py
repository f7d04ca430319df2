"""Which handlers of a group take which types of messages: here, and in the other workers that are alive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Final, Protocol

from godwit.brokers.contract import Delivery, Place
from godwit.core.clock import Clock, milliseconds
from godwit.runtime.delivery.in_flight import HeldDelivery
from godwit.runtime.worker.consumer import Consumer
from godwit.runtime.worker.heartbeat import STOPPED, ConsumerInstance, InstanceStatus

Types = frozenset[str] | None
"""The types that a handler takes; None for all."""

FIRST_DELAY: Final = timedelta(milliseconds=100)
DOUBLINGS: Final = 8
"""How often the delay doubles of a message that belongs to another worker: up to 25 s."""
UNTIL_MEMBERS_ARE_KNOWN: Final = timedelta(seconds=1)
GRACE_BEATS: Final = 2
"""How many heartbeats a member may take to say that it handles a type."""
REMEMBERED: Final = 1_000
"""Of how many types it is remembered since when no live member handles them."""


class TakesOver(Protocol):
    """A consumer of this worker that takes over what another one of its group pulled."""

    consumer: Consumer

    def take_over(self, delivery: Delivery) -> None:
        """Handle a message that is held already."""
        ...

    def nudge(self) -> None:
        """Look again whether there is something to pull."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether as many messages wait for it as it handles at once."""
        ...


def served_types(consumers: Iterable[Consumer]) -> dict[Place, tuple[str, ...]]:
    """Return the types that a worker handles, of the groups of which it does not handle all."""
    found: dict[Place, set[str]] = defaultdict(set)
    every: set[Place] = set()
    for consumer in consumers:
        for queue in consumer.queues:
            found[queue, consumer.group] |= consumer.types or set()
            if consumer.types is None:
                every.add((queue, consumer.group))
    return {place: tuple(sorted(types)) for place, types in found.items() if place not in every}


class GroupTypes:
    """Finds who takes a message whose type its consumer does not handle.

    In this worker another consumer of the group takes it over. One that a live worker elsewhere handles is postponed,
    a little longer each time, until that worker pulls it. Only what no live member handles is given up.
    """

    def __init__(
        self,
        consumers: Iterable[Consumer],
        *,
        worker: str,
        members: Callable[[str], Awaitable[list[ConsumerInstance]]],
        interval: timedelta,
        clock: Clock,
    ) -> None:
        self.served = served_types(consumers)
        self._worker, self._members, self._clock = worker, members, clock
        self._grace_ms = GRACE_BEATS * milliseconds(interval)
        self._here: dict[Place, list[TakesOver]] = defaultdict(list)
        self._elsewhere: dict[Place, list[Types]] = {}
        self._unhandled_since: dict[tuple[Place, str], int] = {}

    def add(self, puller: TakesOver) -> None:
        """Let a consumer of this worker take part."""
        for queue in puller.consumer.queues:
            self._here[queue, puller.consumer.group].append(puller)

    async def refresh(self) -> None:
        """Learn what the other members of the groups handle."""
        for queue in {queue for queue, _ in self.served}:
            found: dict[Place, list[Types]] = {(queue, group): [] for at, group in self.served if at == queue}
            for one in await self._members(queue):
                place = (one.queue, one.group)
                if place in found and one.id != self._worker and _is_alive(one):
                    found[place].append(None if one.types is None else frozenset(one.types))
            self._elsewhere |= found

    def pass_on(self, held: HeldDelivery, type: str) -> bool:
        """Give a message to a handler of its type, or leave it to one elsewhere; say whether there is any."""
        delivery = held.delivery
        place = (delivery.queue, delivery.group)
        for puller in self._here[place]:
            if puller.consumer.types is None or type in puller.consumer.types:
                held.settled = True  # from now on by that consumer's rules
                puller.take_over(delivery)
                return True
        if any(types is None or type in types for types in self._elsewhere.get(place, ())):
            self._unhandled_since.pop((place, type), None)
            held.postpone(FIRST_DELAY * 2 ** min(max(0, delivery.postponements), DOUBLINGS))
            return True
        if self._waits_for_members((place, type)):
            held.postpone(UNTIL_MEMBERS_ARE_KNOWN)
            return True
        return False

    def _waits_for_members(self, unhandled: tuple[Place, str]) -> bool:
        """Say whether a member that handles a type may yet come: one that starts needs a moment to say so."""
        now_ms = self._clock.now_ms()
        while len(self._unhandled_since) >= REMEMBERED and unhandled not in self._unhandled_since:
            self._unhandled_since.pop(next(iter(self._unhandled_since)))
        return now_ms - self._unhandled_since.setdefault(unhandled, now_ms) < self._grace_ms

    def has_room(self, place: Place, puller: TakesOver) -> bool:
        """Say whether a consumer may pull: not while what it pulls for another one could not be taken over."""
        return not any(other.is_behind for other in self._here[place] if other is not puller)

    def made_room(self, puller: TakesOver) -> None:
        """Let the others of a consumer's groups pull again."""
        for queue in puller.consumer.queues:
            for other in self._here[queue, puller.consumer.group]:
                if other is not puller:
                    other.nudge()


def _is_alive(instance: ConsumerInstance) -> bool:
    return instance.status is not InstanceStatus.FAILED and instance.detail != STOPPED
