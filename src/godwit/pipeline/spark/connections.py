"""The broker and the store of a job, callable from any thread.

Spark calls back on threads of its own. Broker and store live in one event loop on one thread; a call from another
thread waits for its answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self, TypeVar

from godwit.brokers.contract import Broker
from godwit.brokers.urls import connect as connect_broker
from godwit.core.errors import PipelineFailed, StoreBusy, StoreRequired
from godwit.store.contract import Store
from godwit.store.pipelines import Pipelines
from godwit.store.urls import connect as connect_store

T = TypeVar("T")
ANSWER_SECONDS: Final = 300.0
"""No call waits for ever. A batch of a million rows is published in seconds."""
CLOSE_SECONDS: Final = 20.0
OPEN_TRIES: Final = 6
"""A call of the store times out after some seconds; creating its tables on a busy machine takes longer."""


class Connections:
    """Opens a job's broker and store at the start of a block and closes them at its end."""

    def __init__(self, broker_url: str, store_url: str | None, *, feature: str = "The pipeline") -> None:
        if store_url is None:
            raise StoreRequired(feature)
        self.broker_url, self.store_url = broker_url, store_url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="godwit pipeline", daemon=True)
        self._broker: Broker | None = None
        self._store: Store | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._run(self._open())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._run(self._close(), CLOSE_SECONDS)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_SECONDS)
            if not self._thread.is_alive():
                self._loop.close()

    def broker(self, call: Callable[[Broker], Awaitable[T]]) -> T:
        """Call the broker."""
        assert self._broker is not None  # noqa: S101 # open inside the block
        return self._run(call(self._broker))

    def pipelines(self, call: Callable[[Pipelines], Awaitable[T]]) -> T:
        """Call the store's state of pipelines."""
        return self.store(lambda store: call(store.pipelines))

    def store(self, call: Callable[[Store], Awaitable[T]]) -> T:
        """Call the store."""
        assert self._store is not None  # noqa: S101 # open inside the block
        return self._run(call(self._store))

    def run(self, call: Awaitable[T], *, seconds: float = ANSWER_SECONDS) -> T:
        """Await anything else that belongs in the same event loop."""
        return self._run(call, seconds)

    async def _open(self) -> None:
        self._store = connect_store(self.store_url)
        await self._store.__aenter__()
        await _wait_for_store(self._store)
        broker = connect_broker(self.broker_url)
        await broker.__aenter__()
        self._broker = broker

    async def _close(self) -> None:
        if self._broker is not None:
            await self._broker.close()
        if self._store is not None:
            await self._store.close()

    def _run(self, call: Awaitable[T], seconds: float = ANSWER_SECONDS) -> T:
        async def carry_out() -> T:
            return await call

        answer = asyncio.run_coroutine_threadsafe(carry_out(), self._loop)
        try:
            return answer.result(seconds)
        except TimeoutError:
            if answer.done():
                raise  # the call's own
            answer.cancel()
            raise PipelineFailed("NoAnswer", f"broker or store did not answer within {seconds:.0f} seconds") from None


async def _wait_for_store(store: Store) -> None:
    for left in reversed(range(OPEN_TRIES)):
        try:
            await store.ping()
        except StoreBusy:
            if not left:
                raise
        else:
            return
