"""Pulls that wait until something comes, and pulls whose caller does not wait for their end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any

from godwit.brokers.contract import Delivery, HandBack, Settlement
from godwit.brokers.rabbitmq.consumer import GroupConsumer
from godwit.brokers.rabbitmq.listen import RabbitListeners

Pull = Callable[[], Coroutine[Any, Any, list[Delivery]]]
"""Leases what is there now."""


class Waiter:
    """Waits for the pulls of one broker."""

    def __init__(
        self,
        listeners: RabbitListeners,
        settle: Callable[[Sequence[Settlement]], Awaitable[object]],
        spawn: Callable[[Coroutine[Any, Any, Any]], None],
    ) -> None:
        self._listeners, self._settle, self._spawn = listeners, settle, spawn

    async def pull(self, consumer: GroupConsumer, once: Pull, limit: int, wait: timedelta) -> list[Delivery]:
        """Pull until something comes, for at most `wait`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait.total_seconds()
        consumer.wanted += limit
        listener = self._listeners.listen([consumer.place])
        try:
            while True:
                listener.clear()
                deliveries = await self.uncancelled(once())
                left = deadline - loop.time()
                if deliveries or left <= 0:
                    return deliveries
                await listener.wait(timedelta(seconds=left))
        finally:
            consumer.wanted -= limit
            listener.close()

    async def uncancelled(self, pull: Coroutine[Any, Any, list[Delivery]]) -> list[Delivery]:
        """Let a pull come to its end even when its caller is gone, and hand back what it got then."""
        task = asyncio.get_running_loop().create_task(pull)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._spawn(self._hand_back(task))
            raise

    async def _hand_back(self, task: asyncio.Task[list[Delivery]]) -> None:
        deliveries = await task
        if deliveries:
            await self._settle([HandBack(delivery.ack_id) for delivery in deliveries])
