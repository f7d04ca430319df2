"""The one bridge from synchronous code to the manager: calls run in an event loop of another thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from datetime import timedelta
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

from godwit.core.errors import BlockedLoop, BrokerClosed, InvalidSetting, NotOpen
from godwit.core.settings import Settings
from godwit.runtime.effects.once import DEFAULT_HOLD, DEFAULT_TTL, Once
from godwit.runtime.effects.outbox import OutboxWriter
from godwit.runtime.effects.sync_effects import SyncOnce, SyncOutbox, refuse_asynchronous, run_here
from godwit.store.contract import Store
from godwit.store.driver_connections import is_in_transaction

P = ParamSpec("P")
T = TypeVar("T")


class Opened:
    """In which event loop of which process a manager is open."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()

    def here(self) -> bool:
        """Take note that it opens in the running loop, refused where it is open already; say whether after a fork."""
        if self.loop not in {None, asyncio.get_running_loop()}:
            raise NotOpen("is already open in another event loop", "Use it there, or make one manager for each loop.")
        before, self._process = self._process, os.getpid()
        self._loop = asyncio.get_running_loop()
        return self._process != before

    def no_more(self) -> None:
        """Take note that it closes."""
        self._loop = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that it is open in; a child of the process that opened it is refused."""
        loop = self._loop
        if loop is not None and self._process != os.getpid():
            problem = "was opened before this process was forked, and its connections belong to the parent"
            raise NotOpen(problem, "A manager may be made before the fork; open it, or call mq.sync, after it.")
        return None if loop is None or loop.is_closed() else loop


class OpensAndCloses(Protocol):
    """What is bridged: it opens and closes, and says where it is open."""

    opened: Opened

    settings: Settings
    store: Store | None

    async def __aenter__(self) -> object:
        """Open it."""
        ...

    async def __aexit__(self, *exc: object) -> None:
        """Close it."""
        ...

    def outbox(self, connection: Any) -> OutboxWriter:
        """Return an outbox in the application's own transaction."""
        ...

    def once(self, key: str, *, ttl: timedelta, hold: timedelta, connection: Any) -> Once:
        """Return an effect that happens once."""
        ...


class SyncBridge:
    """Runs coroutines for callers without an event loop.

    A manager that is open in an event loop is used there, from any other thread. Otherwise the first call opens it in a
    thread of the bridge, and `close`, or the end of the process, closes it.
    """

    def __init__(self, manager: OpensAndCloses) -> None:
        self._manager = manager
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._store_opened = False

    def outbox(self, connection: Any) -> SyncOutbox:
        """Return an outbox: what it enqueues leaves when the transaction of `connection` commits, else never."""
        self._open_store_for(connection)
        return SyncOutbox(self._manager.outbox(connection))

    def once(
        self, key: str, *, ttl: timedelta = DEFAULT_TTL, hold: timedelta = DEFAULT_HOLD, connection: Any = None
    ) -> SyncOnce:
        """Let an effect happen once: `with mq.sync.once(key) as first: if first: ...`; see the manager's `once`."""
        if connection is not None:
            self._open_store_for(connection)
        once = self._manager.once(key, ttl=ttl, hold=hold, connection=connection)
        return SyncOnce(once, self.run if connection is None else run_here)

    def open(self) -> None:
        """Open the manager and its store now, instead of at the first call."""
        self._refuse_inside_a_loop("open")
        self._opened()
        if self._manager.store is not None and not self._store_opened:
            self.run(self._manager.store.ping())
            self._store_opened = True

    def _open_store_for(self, connection: Any) -> None:
        """See that the store can be written to in a transaction of the caller.

        Opening writes to the file of a SQLite broker or store: in a transaction on that file it would wait for itself.
        """
        refuse_asynchronous(connection)
        urls = (self._manager.settings.broker_url, self._manager.settings.store_url or "")
        if self._store_opened:
            return
        if not is_in_transaction(connection) or not any(url.startswith("sqlite:") for url in urls):
            self.open()
        elif self._manager.opened.loop is None:
            allowed = "before the first transaction: call mq.sync.open() when the program starts"
            raise InvalidSetting("the manager's opening", "inside a transaction", allowed)

    def run(self, coroutine: Coroutine[Any, Any, T], name: str = "run") -> T:
        """Run a coroutine, such as `mq.scheduler.get(id)`, and return its result."""
        try:
            self._refuse_inside_a_loop(name)
            loop = self._opened()
        except BaseException:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    def blocking(self, function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
        """Return the synchronous form of an asynchronous function."""

        @wraps(function)
        def call(*arguments: P.args, **options: P.kwargs) -> T:
            return self.run(function(*arguments, **options), function.__name__)

        return call

    def iterating(self, function: Callable[P, AsyncIterator[T]]) -> Callable[P, Iterator[T]]:
        """Return the synchronous form of a function that returns an asynchronous iterator."""

        @wraps(function)
        def call(*arguments: P.args, **options: P.kwargs) -> Iterator[T]:
            items = aiter(function(*arguments, **options))
            while True:
                try:
                    yield self.run(_awaited(anext(items)), function.__name__)
                except StopAsyncIteration:
                    return

        return call

    def _refuse_inside_a_loop(self, name: str) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise BlockedLoop(f"mq.sync.{name}()")

    def _opened(self) -> asyncio.AbstractEventLoop:
        opened = self._manager.opened
        _ = opened.loop  # refused in a child, where the lock may be held by a thread that is not there
        with self._lock:
            elsewhere = opened.loop
            if elsewhere is not None and elsewhere is not self._loop and elsewhere.is_running():
                return elsewhere
            if self._closed:
                raise BrokerClosed("The manager's synchronous bridge")
            if self._loop is None:
                self._loop = self._open()
            return self._loop

    def _open(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="godwit sync", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._manager.__aenter__(), loop).result()
        except BaseException:
            self._end(loop)
            raise
        # Before the executors of the process stop taking work, which closing may need: `atexit` is after that.
        threading._register_atexit(self.close)  # type: ignore[attr-defined] # noqa: SLF001 - there is no public one
        return loop

    def close(self) -> None:
        """Close the manager and end the thread."""
        with self._lock:
            loop, self._loop, self._closed = self._loop, None, True
            if loop is None or self._thread is None or not self._thread.is_alive():
                return  # after a fork there is no thread, and what is open belongs to the parent
            try:
                asyncio.run_coroutine_threadsafe(self._manager.__aexit__(None, None, None), loop).result()
            finally:
                self._end(loop)

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(loop.stop)
        if self._thread is not None:
            self._thread.join()
        loop.close()


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable
