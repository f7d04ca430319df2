"""From a URL to a broker; each backend is imported only when its scheme is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from godwit.brokers.contract import Broker
from godwit.core.errors import InvalidSetting, UnknownScheme


def _memory(url: str) -> Broker:
    from godwit.brokers.memory import MemoryBroker

    if url.rstrip("/") != "memory:":
        raise InvalidSetting("url", url, "memory:// without a path")
    return MemoryBroker()


def _sqlite(url: str) -> Broker:
    from godwit.brokers.sqlite import SqliteBroker

    return SqliteBroker.from_url(url)


SCHEMES: Final[dict[str, Callable[[str], Broker]]] = {"memory": _memory, "sqlite": _sqlite}


def connect(url: str) -> Broker:
    """Return the broker a URL names, such as `sqlite:///godwit.db` or `memory://`; use it with `async with`."""
    scheme, separator, _ = url.partition("://")
    make = SCHEMES.get(scheme) if separator else None
    if make is None:
        raise UnknownScheme(scheme if separator else url, tuple(SCHEMES))
    return make(url)
