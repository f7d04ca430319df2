"""Pulls that wait on the server, and what they brought.

Behind the command that waits for a marker a pull is sent: the server runs it the moment the marker comes, so that a
message is on its way to the waiting pull without another round trip. It takes a message that comes alone; the rest
is announced by the marker and pulled as ever. What it leases is kept for the worker's next pull. When none
asks for it soon, it is handed back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from godwit.brokers.contract import Delivery
from godwit.brokers.listener import LoopListener
from godwit.brokers.redis.client.connection import Argument, ServerInfo
from godwit.brokers.redis.client.errors import ServedClient
from godwit.brokers.redis.pull import PULL_ONE, Pulled, PullOrder, RedisPuller
from godwit.core.fault_points import fault_point

UNCLAIMED_SECONDS: Final = 0.5


class ParkedPull(NamedTuple):
    """A pull that waits on the server for one listener."""

    listener: LoopListener
    order: PullOrder
    token: str
    command: Sequence[Argument]
    client: ServedClient


class PrefetchedPulls:
    """Sends pulls ahead and keeps what they bring; `hand_back` and `lost` are for what no pull gets."""

    def __init__(
        self,
        taker: RedisPuller,
        *,
        hand_back: Callable[[Sequence[Delivery]], None],
        lost: Callable[[PullOrder, str, ServedClient], None],
    ) -> None:
        self._taker, self._hand_back, self._lost = taker, hand_back, lost
        self._kept: dict[PullOrder, tuple[float, list[Delivery]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def park(self, listener: LoopListener, order: PullOrder, server: ServerInfo) -> ParkedPull:
        """Return a pull for a listener, ready to be sent."""
        token, command = self._taker.waiting(order, server.run_id)
        fault_point(PULL_ONE.before)
        return ParkedPull(listener, order, token, command, server.client)

    def read(self, parked: ParkedPull, reply: Any) -> Pulled | None:
        """Return what a pull found, or None when it did not look."""
        pulled = self._taker.answered(parked.order, parked.token, reply)
        if pulled is not None:
            fault_point(PULL_ONE.after)
        return pulled

    def keep(self, order: PullOrder, deliveries: list[Delivery]) -> None:
        """Keep deliveries for the next pull of this order."""
        _, before = self._kept.get(order, (0.0, []))
        loop = asyncio.get_running_loop()
        self._kept[order] = (loop.time(), before + deliveries)
        if self._timer is None:
            self._timer = loop.call_later(UNCLAIMED_SECONDS, self._look)

    def has(self, order: PullOrder) -> bool:
        """Say whether something is kept for this order."""
        return order in self._kept

    def claim(self, order: PullOrder, limit: int) -> list[Delivery]:
        """Return what is kept for this order, up to `limit`."""
        if order not in self._kept:
            return []
        since, deliveries = self._kept.pop(order)
        if len(deliveries) > limit:
            self._kept[order] = (since, deliveries[limit:])
            return deliveries[:limit]
        return deliveries

    def give_up(self, order: PullOrder) -> None:
        """Hand back what is kept for this order: its listener is gone."""
        if order in self._kept:
            self._hand_back(self._kept.pop(order)[1])

    def give_up_all(self) -> None:
        """Hand everything back: no pull will come any more."""
        for order in list(self._kept):
            self.give_up(order)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Hand back what came for a worker that is gone."""
        self._hand_back(deliveries)

    def lost(self, parked: ParkedPull) -> None:
        """Look after a pull whose connection broke: it may have leased something."""
        self._lost(parked.order, parked.token, parked.client)

    def _look(self) -> None:
        """Hand back what no pull asked for; one timer for all."""
        self._timer = None
        loop = asyncio.get_running_loop()
        for order, (since, _) in list(self._kept.items()):
            if since <= loop.time() - UNCLAIMED_SECONDS:
                self.give_up(order)
        if self._kept:
            self._timer = loop.call_later(UNCLAIMED_SECONDS, self._look)
