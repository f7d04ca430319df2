"""A harness for a broker with a server of its own: whatever a URL names, in real time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from godwit.brokers.contract import Broker
from godwit.brokers.urls import connect
from godwit.core.clock import SystemClock
from tests.conformance.harness import Harness


class UrlBackend:
    """Messages live on the server that a URL names."""

    def __init__(self, url: str) -> None:
        self._url = url

    def open(self) -> Broker:
        return connect(self._url)


class RemoteHarness(Harness):
    """One broker under test, by its URL."""

    def __init__(self, url: str) -> None:
        self.name = url.partition(":")[0]
        self.url = url
        self.clock = None
        self._system = SystemClock()
        self._backend = UrlBackend(url)
        self._open: list[Broker] = []


@asynccontextmanager
async def remote(url: str) -> AsyncIterator[RemoteHarness]:
    """Give an open harness, closed at the end."""
    harness = RemoteHarness(url)
    await harness.start()
    try:
        yield harness
    finally:
        await harness.stop()
