"""Health callables of groups: what an application knows about its own consumers."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import msgspec

from godwit.core.errors import InvalidSetting
from godwit.core.settings import DEFAULTS
from godwit.runtime.threads import in_daemon_thread

HealthCallable = Callable[[], Awaitable[object] | object]
"""Well unless it raises, returns False or does not answer in time; a plain function is called in a thread."""

_ALLOWED: Final = "module:function, a callable without arguments"


class HealthProbe(msgspec.Struct, frozen=True, kw_only=True):
    """How often a group's consumers are asked, how long an answer may take, and whom to ask."""

    interval: timedelta = DEFAULTS.consumer.health_check.interval
    timeout: timedelta = DEFAULTS.consumer.health_check.timeout
    ask: HealthCallable | None = None

    async def problem(self) -> str | None:
        """Ask once; return what is wrong, or None."""
        if self.ask is None:
            return None
        try:
            async with asyncio.timeout(self.timeout.total_seconds()):
                answer = await _called(self.ask)
        except TimeoutError:
            return f"health check: no answer within {self.timeout.total_seconds():g} s"
        except Exception as error:  # noqa: BLE001 # whatever it raises is its answer
            return f"health check: {type(error).__name__}: {error}"
        return "health check: it says no" if answer is False else None


async def _called(ask: HealthCallable) -> object:
    answer = ask() if inspect.iscoroutinefunction(ask) else await in_daemon_thread(ask, name="godwit health check")
    return await answer if inspect.isawaitable(answer) else answer


def named(callable_name: str) -> HealthCallable:
    """Return the callable that `module:function` of a configuration names."""
    module, separator, name = callable_name.partition(":")
    try:
        found: Any = importlib.import_module(module) if separator else None
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError):
        raise InvalidSetting("health_check.callable", callable_name, _ALLOWED) from None
    if not callable(found):
        raise InvalidSetting("health_check.callable", callable_name, _ALLOWED)
    checked: HealthCallable = found
    return checked
