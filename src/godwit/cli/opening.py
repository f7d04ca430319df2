"""Opening the broker a command works on."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from godwit.brokers.contract import Broker
from godwit.brokers.urls import connect
from godwit.core.errors import BrokerUnavailable

_SQLITE: Final = "sqlite:///"


@asynccontextmanager
async def opened(url: str, *, create: bool = False) -> AsyncIterator[Broker]:
    """Open a broker. A SQLite file that does not exist is only made when the command is meant to `create` things.

    Otherwise a mistyped path would leave an empty file behind and look like a broker without queues.
    """
    if url.startswith(_SQLITE) and not create:
        path = url.removeprefix(_SQLITE).partition("?")[0]
        if path and not os.path.exists(path):  # noqa: ASYNC240, PTH110 # once, at the start
            raise BrokerUnavailable(
                url,
                "the file does not exist",
                "Name another with --url, or make it: godwit publish QUEUE ... --declare.",
            )
    async with connect(url) as broker:
        yield broker
