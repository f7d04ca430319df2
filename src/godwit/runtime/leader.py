"""A claim on something that one process does for all: a shared value with a time to live, renewed by its holder."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from typing import Final

from godwit.brokers.contract import Shared
from godwit.core.errors import BrokerError

CLAIM_FOR: Final = timedelta(seconds=4)
RENEW_AFTER: Final = 1.5


class LeaderClaim:
    """A process's claim; a process that dies is followed once its claim ran out."""

    def __init__(self, shared: Shared, key: str, owner: str) -> None:
        self._shared, self._key = shared, key
        self.owner: Final = owner.encode()
        self._version: int | None = None
        self._unsure = False
        """Whether a cancelled call may have taken it."""
        self._held_at = 0.0

    async def hold(self) -> bool:
        """Take it if it is free, renew it in time if it is ours; say whether it is ours."""
        now = time.monotonic()
        if self._version is None:
            if await self._shared.get(self._key) is not None:
                return False
        elif now - self._held_at < RENEW_AFTER:
            return True
        self._unsure = True
        self._version = await self._shared.put(self._key, self.owner, expected=self._version, ttl=CLAIM_FOR)
        self._unsure = False
        self._held_at = now
        return self._version is not None

    def lost(self) -> None:
        """Take note that another process holds it."""
        self._version = None

    async def release(self) -> None:
        """Leave it to the others at once; when the broker does not answer it runs out."""
        if self._version is None and not self._unsure:
            return
        self._version, self._unsure = None, False
        with suppress(BrokerError):
            entry = await self._shared.get(self._key)
            if entry is not None and entry.value == self.owner:
                await self._shared.delete(self._key)
