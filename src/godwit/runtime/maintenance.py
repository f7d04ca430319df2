"""Maintenance shared between processes: one of them does it every second, the others see to it that one does.

The claim is a shared value with a time to live. Whoever holds it renews it; the others see it beside the pauses and
breakers that they look at anyway, so that it costs them nothing. A process that dies is followed once its claim ran
out. Pulls do what is due at their own place in any case: nothing that anybody waits for waits for the claim.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Final

from godwit.admin.control import GATE_PREFIX
from godwit.brokers.contract import Broker, SharedEntry

MAINTAIN_EVERY: Final = timedelta(seconds=1)
CLAIM_FOR: Final = timedelta(seconds=4)
RENEW_AFTER: Final = 1.5
KEY: Final = f"{GATE_PREFIX}maintenance"


class Maintenance:
    """One process's part in looking after a broker."""

    def __init__(self, broker: Broker, owner: str) -> None:
        self._broker = broker
        self._owner = owner.encode()
        self._version: int | None = None
        self._claimed_at = 0.0
        self._ours = asyncio.Event()
        self._ours.set()

    async def our_turn(self) -> None:
        """Wait until it falls to this process."""
        await self._ours.wait()

    def learn(self, claim: SharedEntry | None) -> None:
        """Take note of who claims it now."""
        if claim is None or claim.value == self._owner or not self._broker.care_is_shared:
            self._ours.set()
        else:
            self._ours.clear()
            self._version = None

    async def tick(self) -> None:
        """Maintain the broker, unless another process was faster to claim it."""
        if not self._broker.care_is_shared or await self._claim():
            await self._broker.maintain()

    async def _claim(self) -> bool:
        if self._version is not None and time.monotonic() - self._claimed_at < RENEW_AFTER:
            return True
        now = time.monotonic()
        self._version = await self._broker.shared.put(KEY, self._owner, expected=self._version, ttl=CLAIM_FOR)
        if self._version is None:
            self._ours.clear()  # until somebody looks and finds it unclaimed
            return False
        self._claimed_at = now
        return True

    async def release(self) -> None:
        """Leave it to the others."""
        if self._version is not None and self._broker.care_is_shared:
            claim = await self._broker.shared.get(KEY)
            if claim is not None and claim.value == self._owner:
                await self._broker.shared.delete(KEY)
            self._version = None
