"""Which queues take no messages at the moment, as a producer knows it: never older than a second when asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from godwit.admin.control import draining_queues
from godwit.brokers.contract import Shared
from godwit.core.errors import BrokerError, QueueDraining
from godwit.core.names import QueueName

KNOWN_FOR: Final = 1.0


class Drains:
    """Refuses messages for queues that somebody drains; asks the broker at most once a second."""

    def __init__(self, shared: Shared, *, now: Callable[[], float] = time.monotonic) -> None:
        self._shared, self._now = shared, now
        self._queues: frozenset[QueueName] = frozenset()
        self._until = float("-inf")
        self._asking = asyncio.Lock()

    @property
    def is_known(self) -> bool:
        """Whether the answer of the last time still counts."""
        return self._now() < self._until

    async def refresh(self) -> None:
        """Ask the broker, unless another caller just did; when it does not answer, the publish will say so."""
        async with self._asking:
            if not self.is_known:
                with suppress(BrokerError):
                    self._queues = await draining_queues(self._shared)
                self._until = self._now() + KNOWN_FOR

    def check(self, queues: Iterable[QueueName]) -> None:
        """Raise `QueueDraining` when one of these queues is being drained."""
        if self._queues:
            for queue in queues:
                if queue in self._queues:
                    raise QueueDraining(queue)
