"""The only place where tests let real time pass."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from tests.steal_time import calm

T = TypeVar("T")

PATIENCE = timedelta(seconds=float(os.environ.get("GODWIT_TEST_PATIENCE", "60")))
"""For what need not be quick: only what never comes takes so long."""
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


async def soon(awaitable: Awaitable[T], seconds: float) -> T:
    """Return what comes; fail when it takes longer than so many seconds of this machine."""
    began = calm()
    result = await awaitable
    took = calm() - began
    assert took < seconds, f"{took:.1f} s"
    return result


async def real_time(duration: timedelta) -> None:
    """Let the wall clock move on, for backends that keep their own time."""
    await asyncio.sleep(duration.total_seconds())
