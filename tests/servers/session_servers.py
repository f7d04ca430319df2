"""Servers that one pytest process starts at first use and keeps until its end."""

from __future__ import annotations

import contextlib
from typing import TypeVar

T = TypeVar("T")

_servers: dict[str, object] = {}
_stack = contextlib.ExitStack()


def lasting(name: str, server: contextlib.AbstractContextManager[T]) -> T:
    """Return the running server of that name, started now if it is not up yet."""
    if name not in _servers:
        _servers[name] = _stack.enter_context(server)
    return _servers[name]  # type: ignore[return-value]  # the name decides the type


def stop_all() -> None:
    """Stop them in reverse order; called when the test session ends."""
    _servers.clear()
    _stack.close()
