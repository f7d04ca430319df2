"""A broker called from synchronous code in one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from godwit.brokers.contract import Broker, Journal
from godwit.brokers.urls import connect

T = TypeVar("T")


class SyncBroker:
    """A broker opened in this thread and called synchronously. It belongs to the process that opened it.

    In a notebook an event loop is running in this thread already; then another thread runs the broker's.
    """

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._broker = connect(url)
        self._thread = ThreadPoolExecutor(1, "godwit broker") if _loop_is_running() else None

    def __enter__(self) -> Self:
        try:
            self._run(self._broker.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._run(self._broker.close())
        finally:
            self._end()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            return self._runner.run(call)
        return self._thread.submit(self._runner.run, call).result()

    def _end(self) -> None:
        if self._thread is None:
            self._runner.close()
            return
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()

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

        return self._run(carry_out())


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
