"""Waiting for messages of a broker's places: woken by what the server sends, and by leases that run out here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from godwit.brokers.contract import Place
from godwit.brokers.place_listeners import PlaceListeners
from godwit.brokers.rabbitmq.consumer import GroupConsumer
from godwit.brokers.rabbitmq.leases import LeaseTable
from godwit.core.clock import Clock

SOON_MS: Final = 250
"""A lease that ends sooner than this is waited for without a look between."""


class RabbitListeners(PlaceListeners):
    """The first listener at a place makes the server send ahead, the last one ends that."""

    def __init__(
        self,
        consumer: Callable[[Place], GroupConsumer],
        lease_table: LeaseTable,
        clock: Clock,
        care: Callable[[Place], None],
    ) -> None:
        super().__init__(
            clock, entered=lambda place: consumer(place).enter(), left=lambda place: consumer(place).leave()
        )
        self._consumer, self._lease_table, self._care = consumer, lease_table, care

    def look(self, places: Sequence[Place]) -> None:
        """Wake who listens where something is ready, and watch for leases that run out."""
        for place in places:
            if place not in self._places:
                continue
            consumer = self._consumer(place)
            if consumer.ready:
                self.wake(place, len(consumer.buffer))
            elif not consumer.consuming:
                consumer.begin()
            now_ms = self._clock.now_ms()
            due_ms, _ = self._lease_table.outlook(place, now_ms)
            if due_ms is not None:
                # A lease for whose whole length no call looked counts as an outage, which moves it by its length: a
                # look between keeps it from that.
                left_ms = due_ms - now_ms
                self._arm(place, now_ms + left_ms // 2 if left_ms > SOON_MS else due_ms)

    def arrived(self, place: Place) -> None:
        """Wake one listener for what just came; also called when a place has to be looked at anew."""
        if place in self._places:
            self.wake(place, 1)

    def _due(self, place: Place, due_ms: int) -> None:
        del due_ms
        self._care(place)
