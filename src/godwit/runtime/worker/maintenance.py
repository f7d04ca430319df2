"""Maintenance shared between processes: one of them does it every second, the others see to it that one does.

The others see the claim beside the pauses and breakers that they look at anyway, so that it costs them nothing. Pulls
do what is due at their own place in any case: no waiting pull waits for the claim.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from godwit.brokers.contract import SharedEntry, Upkeep
from godwit.core.errors import BrokerUnavailable
from godwit.core.shared_keys import MAINTENANCE
from godwit.runtime.leader import LeaderClaim

MAINTAIN_EVERY: Final = timedelta(seconds=1)


class Maintenance:
    """Maintains a broker from this process, when no other does."""

    def __init__(self, broker: Upkeep, owner: str) -> None:
        self._broker = broker
        self._claim = LeaderClaim(broker.shared, MAINTENANCE, owner)
        self._ours = asyncio.Event()
        self._ours.set()

    @property
    def is_ours(self) -> bool:
        """Whether this process does it, as far as it knows."""
        return self._ours.is_set()

    async def our_turn(self) -> None:
        """Wait until it falls to this process."""
        await self._ours.wait()

    def learn(self, claim: SharedEntry | None) -> None:
        """Take note of who claims it now."""
        if claim is None or claim.value == self._claim.owner or not self._broker.care_is_shared:
            self._ours.set()
        else:
            self._ours.clear()
            self._claim.lost()

    async def tick(self) -> None:
        """Maintain the broker, unless another process was faster to claim it."""
        if not self._broker.care_is_shared or await self._claimed():
            await self._broker.maintain()
        else:
            self._ours.clear()  # until another process finds it unclaimed

    async def _claimed(self) -> bool:
        """Say whether it falls to this process: also when the claim is out of reach, with a part of a cluster."""
        try:
            return await self._claim.hold()
        except BrokerUnavailable:
            return True

    async def release(self) -> None:
        """Leave it to the others."""
        await self._claim.release()
