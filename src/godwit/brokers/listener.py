"""A listener in an event loop: it remembers between `clear` and `wait` that something may be ready."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from godwit.brokers.contract import Place


class Listeners(Protocol):
    """Who listens where, in one broker."""

    def look(self, places: Sequence[Place]) -> None:
        """Wake those who listen at these places if something is ready there, and watch for what is due."""
        ...

    def forget(self, listener: LoopListener) -> None:
        """Take a listener off."""
        ...


class LoopListener:
    """Waits for several places at once, without losing a wake-up."""

    def __init__(self, listeners: Listeners, places: Sequence[Place]) -> None:
        self.places = tuple(places)
        self._listeners = listeners
        self._woken = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def waits(self) -> bool:
        """Whether a pull waits here and was not woken yet."""
        return self._waiter is not None and not self._waiter.done()

    def clear(self) -> None:
        """Forget earlier wake-ups; call it before pulling."""
        self._woken = False

    def expect(self, *, worker: str, limit: int, lease: timedelta, max_bytes: int | None = None) -> None:
        """Let a broker that can fetch it ahead know what will be pulled."""

    def wake(self) -> None:
        """Say that something may be ready."""
        self._woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _time_ran_out(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, timeout: timedelta) -> bool:  # noqa: ASYNC109
        """Return True when something may have become ready since `clear`, False once `timeout` has passed."""
        seconds = timeout.total_seconds()
        if self._woken or seconds <= 0:
            await asyncio.sleep(0)  # no pull may keep the loop to itself
            return self._woken
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds, self._time_ran_out)
        try:
            self._listeners.look(self.places)  # sees what came before a pull waited
            if self._waiter.done():
                await asyncio.sleep(0)  # it may be more than one portion of maintenance
            else:
                await self._waiter
        except asyncio.CancelledError:
            self._waiter = None
            self._listeners.look(self.places)  # it may have been woken for something: let another fetch it
            raise
        finally:
            timer.cancel()
            self._waiter = None
        return self._woken

    def close(self) -> None:
        """Listen no more."""
        self._listeners.forget(self)
