"""A broker called from synchronous code in one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

from godwit.brokers.contract import Broker, Journal
from godwit.brokers.urls import connect

T = TypeVar("T")


class SyncBroker:
    """A broker opened in this thread and called synchronously. It belongs to the process that opened it."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._broker = connect(url)

    def __enter__(self) -> Self:
        try:
            self._runner.run(self._broker.__aenter__())
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._runner.run(self._broker.close())
        finally:
            self._runner.close()

    @property
    def broker(self) -> Broker:
        """The broker itself, for `ask`."""
        return self._broker

    def ask(self, question: Callable[[Journal], Awaitable[T]]) -> T:
        """Call the journal and return its answer."""
        return self.do(lambda broker: question(broker.journal))

    def do(self, call: Callable[[Broker], Awaitable[T]]) -> T:
        """Call the broker and return its answer."""

        async def carry_out() -> T:
            return await call(self._broker)

        return self._runner.run(carry_out())
