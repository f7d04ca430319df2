"""Giving a message its last chance alone, so that it cannot take innocent ones down with it.

A message that was in the hands of workers when they died may be the cause, or may only have been near it. On its last
chance before it would be called poison it is handled while the worker holds nothing else: if the process dies again, it
is the cause; if not, it is cleared.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

_LOOK_AGAIN_SECONDS: Final = 0.01


class Quarantine:
    """A worker's right to begin work: shared by its consumers, or held by one alone."""

    def __init__(self, holds_nothing: Callable[[], bool]) -> None:
        self._holds_nothing = holds_nothing
        self._open = asyncio.Event()
        self._open.set()

    @property
    def is_open(self) -> bool:
        """Whether no message is handled alone."""
        return self._open.is_set()

    async def may_begin(self) -> None:
        """Return when no message is handled alone."""
        await self._open.wait()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Keep others from beginning, wait until all in hand is settled or given up, and let them go on afterwards."""
        while not self._open.is_set():
            await self._open.wait()
        self._open.clear()
        try:
            while not self._holds_nothing():  # noqa: ASYNC110 # rare, and settling is not one event
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            yield
            while not self._holds_nothing():  # noqa: ASYNC110 # rare, and settling is not one event
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        finally:
            self._open.set()
