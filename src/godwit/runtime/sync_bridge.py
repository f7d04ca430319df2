"""The one bridge from synchronous code to the manager: calls run in an event loop of their own thread."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from godwit.core.errors import BrokerClosed, InvalidSetting
from godwit.core.settings import Settings
from godwit.runtime.effects.once import DEFAULT_HOLD, DEFAULT_TTL, Once
from godwit.runtime.effects.outbox import OutboxWriter
from godwit.runtime.effects.sync_effects import SyncOnce, SyncOutbox, refuse_asynchronous, run_here
from godwit.store.contract import Store
from godwit.store.driver_connections import is_in_transaction

T = TypeVar("T")


class Manager(Protocol):
    """What is bridged: it opens and closes, and its methods are found by name."""

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
    """`mq.sync.enqueue(...)` is `await mq.enqueue(...)` for callers without an event loop.

    The first call opens the manager in a thread; `close`, or the end of the process, closes it. A manager that is open
    in an event loop of its own must be used from there.
    """

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._store_opened = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the synchronous form of one of the manager's methods."""
        method = getattr(self._manager, name)
        if not asyncio.iscoroutinefunction(method):
            raise AttributeError(f"{name!r} is not an asynchronous method of the manager; call it directly")

        def call(*arguments: Any, **options: Any) -> Any:
            return self.run(method(*arguments, **options))

        return call

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
        if not self._store_opened and is_in_transaction(connection) and any(url.startswith("sqlite:") for url in urls):
            allowed = "before the first transaction: call mq.sync.open() when the program starts"
            raise InvalidSetting("the manager's opening", "inside a transaction", allowed)
        self.open()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the bridge's loop and return its result."""
        try:
            loop = self._opened()
        except BaseException:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    def _opened(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise BrokerClosed("The manager's synchronous bridge")
            if self._loop is None:
                loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=loop.run_forever, name="godwit sync", daemon=True)
                self._thread.start()
                try:
                    asyncio.run_coroutine_threadsafe(self._manager.__aenter__(), loop).result()
                except BaseException:
                    self._end(loop)
                    raise
                self._loop = loop
                atexit.register(self.close)
            return self._loop

    def close(self) -> None:
        """Close the manager and end the thread."""
        with self._lock:
            loop, self._loop, self._closed = self._loop, None, True
            if loop is None:
                return
            atexit.unregister(self.close)
            try:
                asyncio.run_coroutine_threadsafe(self._manager.__aexit__(None, None, None), loop).result()
            finally:
                self._end(loop)

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(loop.stop)
        if self._thread is not None:
            self._thread.join()
        loop.close()
