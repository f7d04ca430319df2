"""Opening the broker a command works on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from godwit.brokers.contract import Broker
from godwit.brokers.urls import connect
from godwit.core.errors import BrokerUnavailable

_SQLITE: Final = "sqlite:///"


def sqlite_file(url: str) -> Path | None:
    """Return the file a URL names, or None when it names another kind of broker."""
    path = unquote(url.removeprefix(_SQLITE))
    return Path(path) if url.startswith(_SQLITE) and path else None


def check_exists(url: str) -> None:
    """Refuse a SQLite file that does not exist.

    Opening makes it: a mistyped path would leave an empty file behind and look like a broker without queues.
    """
    file = sqlite_file(url)
    if file is not None and not file.exists():
        remedy = "Name another with --url, or make it: godwit publish QUEUE ... --declare."
        raise BrokerUnavailable(url, "the file does not exist", remedy)


@asynccontextmanager
async def opened(url: str, *, create: bool = False) -> AsyncIterator[Broker]:
    """Open a broker; only a command that is meant to `create` things makes a new file."""
    if not create:
        check_exists(url)
    async with connect(url) as broker:
        yield broker
