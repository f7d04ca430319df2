"""Opening a broker that may be away just now: a process that starts while it is down waits for it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from godwit.brokers.contract import Broker
from godwit.brokers.urls import connect
from godwit.core.errors import BrokerUnavailable
from tests.waiting import real_time

OUTAGE_SECONDS = 60.0
"""How long a process outlasts a broker that is away."""
PAUSE = timedelta(milliseconds=50)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Broker]:
    """Open the broker of a URL as soon as it is there."""
    until = time.monotonic() + OUTAGE_SECONDS
    while True:
        broker = connect(url)
        try:
            await broker.__aenter__()
            break
        except BrokerUnavailable:
            if time.monotonic() > until:
                raise
            await real_time(PAUSE)
    try:
        yield broker
    finally:
        await broker.close()
