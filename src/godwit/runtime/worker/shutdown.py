"""A worker's way out: the first call to stop is gentle, a second one cuts every wait short."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any


class Shutdown:
    """Whether a worker shall stop, and whether it shall wait for anything on the way."""

    def __init__(self) -> None:
        self._stop = asyncio.Event()
        self._leave = asyncio.Event()

    def call(self) -> None:
        """Ask it to stop; asked again, it leaves without waiting."""
        if self._stop.is_set():
            self._leave.set()
        self._stop.set()

    async def called(self) -> None:
        """Wait until it shall stop."""
        await self._stop.wait()

    async def unless_forced(self, work: Awaitable[object], within: timedelta | None = None) -> bool:
        """Wait for something that a second call, or the time, cuts short; say whether it was finished."""
        working = asyncio.ensure_future(work)
        shutdown = asyncio.ensure_future(self._leave.wait())
        either: list[asyncio.Future[Any]] = [working, shutdown]
        seconds = None if within is None else within.total_seconds()
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        shutdown.cancel()
        if working.done():
            working.result()
            return True
        working.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # or asyncio complains
        working.cancel()
        return False
