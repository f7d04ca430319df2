"""Which queues take no messages at the moment, as a producer knows it: never older than a second when asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from godwit.admin.control import draining_queues
from godwit.brokers.contract import Shared
from godwit.core.background import Background
from godwit.core.errors import BrokerError, QueueDraining
from godwit.core.names import QueueName

KNOWN_FOR: Final = 1.0


class Drains:
    """Refuses messages for queues that are being drained; asks the broker at most once a second."""

    def __init__(self, shared: Shared, *, now: Callable[[], float] = time.monotonic) -> None:
        self._shared, self._now = shared, now
        self._queues: frozenset[QueueName] = frozenset()
        self._until = float("-inf")
        self._asking = asyncio.Lock()
        self._background = Background("producer")
        self._renewing: asyncio.Task[None] | None = None

    @property
    def is_known(self) -> bool:
        """Whether the answer of the last time still counts."""
        return self._now() < self._until

    async def refresh(self) -> None:
        """Ask the broker, unless another caller just did; when it does not answer, the publish will say so."""
        async with self._asking:
            if not self.is_known:
                await self._ask()

    async def _ask(self) -> None:
        asked = self._now()
        with suppress(BrokerError):
            self._queues = await draining_queues(self._shared)
        self._until = asked + KNOWN_FOR

    def is_known_for_long(self) -> bool:
        """Say whether the answer still counts, and ask beside the publishing when it is getting old.

        So a steady publisher never waits for it.
        """
        left = self._until - self._now()
        if left < KNOWN_FOR / 2 and self._renewing is None and left > 0:
            self._renewing = self._background.once("drains", self._ask())
            self._renewing.add_done_callback(self._renewed)
        return left > 0

    def _renewed(self, _: asyncio.Task[None]) -> None:
        self._renewing = None  # whatever it came to: the next publish asks by itself

    async def close(self) -> None:
        """Ask no more."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})

    def check(self, queues: Iterable[QueueName]) -> None:
        """Raise `QueueDraining` when one of these queues is being drained."""
        if self._queues:
            for queue in queues:
                if queue in self._queues:
                    raise QueueDraining(queue)
