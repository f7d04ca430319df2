"""The broker and the store that a command works on: found by options and configuration, then opened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from godwit.brokers.contract import Broker
from godwit.brokers.urls import connect_for
from godwit.cli.args.options import DEFAULT_FILE
from godwit.config import load
from godwit.core.errors import BrokerUnavailable
from godwit.core.settings import Settings

if TYPE_CHECKING:
    from godwit.manager import MessageQueueManager

_SQLITE: Final = "sqlite:///"


def settings_for(url: str | None = None, store: str | None = None, *, file: Path | None = None) -> Settings:
    """Return a command's configuration: its options over the environment over godwit.toml (or `file`)."""
    given = {"broker_url": url, "store_url": store}
    if file is None and DEFAULT_FILE.exists():
        file = DEFAULT_FILE
    return load(file, arguments={key: value for key, value in given.items() if value is not None})


def sqlite_file(url: str) -> Path | None:
    """Return the file a URL names, or None when it names another kind of broker."""
    path = unquote(url.removeprefix(_SQLITE))
    return Path(path) if url.startswith(_SQLITE) and path else None


def check_exists(url: str) -> None:
    """Refuse a SQLite file that does not exist.

    Opening creates the file: a mistyped path would leave an empty file behind and look like a broker without queues.
    """
    file = sqlite_file(url)
    if file is not None and not file.exists():
        remedy = "Name another with --url, or make it: godwit publish QUEUE ... --declare."
        raise BrokerUnavailable(url, "the file does not exist", remedy)


@asynccontextmanager
async def open_broker(url: str | None, *, create: bool = False) -> AsyncIterator[Broker]:
    """Open the broker that --url or the configuration names; only with `create` is a new file made."""
    settings = settings_for(url)
    if not create:
        check_exists(settings.broker_url)
    async with connect_for(settings) as broker:
        yield broker


@asynccontextmanager
async def manager_for(url: str | None, store: str | None = None) -> AsyncIterator[MessageQueueManager]:
    """Open a manager for the broker and the store that options or configuration name."""
    from godwit.manager import MessageQueueManager

    settings = settings_for(url, store)
    check_exists(settings.broker_url)
    async with MessageQueueManager.from_settings(settings) as manager:
        yield manager
