"""The only place where tests let real time pass."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta

from tests.stolen import calm

PATIENCE = timedelta(seconds=10)
_POLL_SECONDS = 0.005


async def eventually(
    condition: Callable[[], bool] | Callable[[], Awaitable[bool]],
    *,
    within: timedelta = PATIENCE,
    what: str = "the condition",
) -> None:
    """Return as soon as `condition` holds; fail when it does not `within` that time of this machine."""
    deadline = calm() + within.total_seconds()
    while True:
        held = condition()
        if await held if inspect.isawaitable(held) else held:
            return
        if calm() > deadline:
            raise AssertionError(f"{what} did not come true within {within}")
        await asyncio.sleep(_POLL_SECONDS)


async def real_time(duration: timedelta) -> None:
    """Let the wall clock move on, for backends that keep their own time."""
    await asyncio.sleep(duration.total_seconds())
