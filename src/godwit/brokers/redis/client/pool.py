"""Connections to one server, each used by one call at a time.

At most `size` are open. A call that finds all of them busy waits, `wait_seconds` at the most. Of those not in use at
most half of `size` are kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from godwit.brokers.redis.client.connection import Argument, RedisConnection, ServerInfo
from godwit.brokers.redis.client.errors import LinkLost
from godwit.brokers.redis.url import ServerAddress
from godwit.core.errors import BrokerBusy

CONNECT_SECONDS: Final = 5.0
REPLY_SECONDS: Final = 30.0
"""A reply that takes longer never comes: the connection is given up."""
SLOW_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 1.0
Then = Callable[[ServerInfo], Sequence[Argument]]


class ConnectionPool:
    """The connections of one process to one server."""

    def __init__(
        self,
        address: ServerAddress,
        *,
        size: int,
        wait_seconds: float,
        reply_seconds: float = REPLY_SECONDS,
        slow: Callable[[], None] | None = None,
    ) -> None:
        self.address = address
        self._slow = slow
        """Called about every second while a reply takes longer than `SLOW_SECONDS`."""
        self.size = size
        self._kept = max(1, size // 2)
        self._wait_seconds = wait_seconds
        self._reply_seconds = reply_seconds
        self._idle: list[RedisConnection] = []
        self._busy: set[RedisConnection] = set()
        self._opening: set[RedisConnection] = set()
        self._waiters: deque[asyncio.Future[RedisConnection | None]] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def open_connections(self) -> int:
        """How many connections there are, in use or not."""
        return len(self._idle) + len(self._busy) + len(self._opening)

    @property
    def idle_connections(self) -> int:
        """How many connections wait to be used."""
        return len(self._idle)

    @property
    def wanted(self) -> bool:
        """Whether a call waits for a connection."""
        return bool(self._waiters)

    @property
    def connected(self) -> bool:
        """Whether a connection is there, as far as is known: then the server is the one it was."""
        return any(link.usable for link in self._idle) or any(link.usable for link in self._busy)

    async def call(self, *commands: Sequence[Argument], signed: bool = False, then: Then | None = None) -> list[Any]:
        """Send commands together over one connection; return a reply for each, errors as values.

        When `signed`, each script's last argument is the run id of the server at the other end. `then` gives one more
        command, which may depend on that server.
        """
        link = self.idle() or await self.acquire()
        if then is not None:
            commands = (*commands, then(link.server))
        return await self.exchange(link, commands, signed=signed)

    async def exchange(
        self, link: RedisConnection, commands: Sequence[Sequence[Argument]], *, signed: bool
    ) -> list[Any]:
        """Send commands over a connection that was acquired, and release it."""
        if signed:
            run_id = link.server.run_id
            commands = tuple((*command, run_id) if command[0] == "EVALSHA" else command for command in commands)
        try:
            replies = await link.send(*commands)
        except asyncio.CancelledError:
            link.when_quiet(self.release)
            raise
        except BaseException:
            self.release(link)
            raise
        self.release(link)
        return replies

    def idle(self) -> RedisConnection | None:
        """Return a connection for the caller alone, if one is at hand."""
        while self._idle:
            link = self._idle.pop()
            if link.usable:
                self._busy.add(link)
                if self._watch is None:
                    self._start_watch()
                return link
        return None

    async def acquire(self) -> RedisConnection:
        """Return a connection for the caller alone."""
        if (link := self.idle()) is not None:
            return link
        if self.open_connections < self.size:
            return await self._open()
        waiter: asyncio.Future[RedisConnection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(self._wait_seconds):
                link_or_none = await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                if (given := waiter.result()) is not None:
                    self.release(given)
                else:
                    self._pass_on()
            if isinstance(error, TimeoutError):
                raise BrokerBusy(f"a call while all {self.size} connections were in use", self._wait_seconds) from None
            raise
        return link_or_none if link_or_none is not None else await self.acquire()

    async def _open(self) -> RedisConnection:
        link = RedisConnection(self.address)
        link.since = asyncio.get_running_loop().time()
        self._opening.add(link)
        self._start_watch()
        try:
            await link.open(CONNECT_SECONDS)
        except BaseException:
            self._opening.discard(link)
            self._pass_on()
            raise
        self._opening.discard(link)
        self._busy.add(link)
        return link

    def release(self, link: RedisConnection) -> None:
        """Take a connection back."""
        self._busy.discard(link)
        if self._closed or not link.usable:
            link.close()
            self._pass_on()
            return
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._busy.add(link)
                waiter.set_result(link)
                return
        if len(self._idle) >= self._kept:
            link.close()
        else:
            self._idle.append(link)

    def _pass_on(self) -> None:
        """Let one who waits try to open a connection: there is room for one."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    # One timer for all calls: a deadline for each would cost as much as the call.

    def _start_watch(self) -> None:
        if self._watch is None and not self._closed:
            self._watch = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._watch = None
        now = asyncio.get_running_loop().time()
        since = min((link.since for link in (*self._busy, *self._opening)), default=now)
        for link in list(self._busy) if since < now - self._reply_seconds else ():
            if link.since < now - self._reply_seconds:
                link.abort(LinkLost(f"no reply within {self._reply_seconds:g} s"))
        if self._slow is not None and since < now - SLOW_SECONDS:
            self._slow()
        if self._busy or self._opening:
            self._start_watch()

    def close(self) -> None:
        """End all connections; calls under way fail."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        for link in (*self._idle, *self._busy, *self._opening):
            link.close()
        self._idle.clear()
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(LinkLost("it was closed"))


class ReservedConnection:
    """A connection for one caller who sends commands before those sent earlier are answered; they run in order."""

    def __init__(self, pool: ConnectionPool, link: RedisConnection) -> None:
        self._pool, self._link = pool, link

    @property
    def address(self) -> ServerAddress:
        """The server at the other end."""
        return self._link.address

    @property
    def wanted(self) -> bool:
        """Whether it should be given back: it is broken, or another call waits for a connection."""
        return self._pool.wanted or not self._link.usable

    def send(self, command: bytes) -> asyncio.Future[list[Any]]:
        """Send one command that is written out; the future gives a list of its reply."""
        replies = self._link.send_packed(command)
        replies.add_done_callback(seen)
        return replies

    def end(self) -> None:
        """Give the connection back, as soon as everything is answered."""
        self._link.when_quiet(self._pool.release)


def seen(replies: asyncio.Future[list[Any]]) -> None:
    """Look at what came instead of a reply: who sent it may wait for another one and never look."""
    if not replies.cancelled():
        replies.exception()
