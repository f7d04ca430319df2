"""A connection to a server: commands out, replies in, in order.

redis-py spends more time per call than the server does; hiredis, its parser, is used directly.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import hiredis

from godwit.brokers.redis.client.errors import LinkLost, Refused, ServedClient
from godwit.brokers.redis.client.topology import misplaced
from godwit.brokers.redis.url import Role, ServerAddress

OLDEST: Final = (6, 2)
"""The oldest server whose commands the scripts know (ZMSCORE, exclusive ranges)."""
WAITS_FOR_DISKS: Final = (7, 2)
"""The first version with WAITAOF."""
_BUFFER_BYTES: Final = 1 << 16
Argument = str | bytes | int
packed_command: Final[Callable[[tuple[Argument, ...]], bytes]] = hiredis.pack_command  # type: ignore[assignment]


class ServerInfo(NamedTuple):
    """What a server says of itself: its process's id (another one after every start), its version and mode.

    `waits_for_disks` says that it keeps an append-only file and knows how far those of its replicas are (WAITAOF).
    """

    run_id: str
    version: str
    mode: str = ""
    waits_for_disks: bool = False
    client_id: int = 0
    """The connection's number there."""

    @property
    def client(self) -> ServedClient:
        """The connection as this server calls it."""
        return ServedClient(self.client_id, self.run_id)


class RedisConnection(asyncio.BufferedProtocol):
    """A connection that is used by one call at a time."""

    opened: ClassVar[int] = 0
    ended: ClassVar[int] = 0
    """Connections of this process, for its metrics."""

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self.server = ServerInfo("", "")
        self.since = 0.0
        """When the call it is busy with began, by the loop's clock."""
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._waiting: deque[tuple[asyncio.Future[Any], int, list[Any]]] = deque()
        self._transport: asyncio.Transport | None = None
        self._lost: Exception | None = None
        self._when_quiet: Callable[[RedisConnection], None] | None = None
        self.at_once: Callable[[Any], None] | None = None
        """Called with every reply before its caller goes on."""

    # The protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        RedisConnection.opened += 1
        self._transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Say where to put what is read: always the same place, which costs less than a new one each time."""
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Give replies to those who wait for them."""
        self._reader.feed(self._buffer, 0, nbytes)  # type: ignore[arg-type]  # any buffer will do
        try:
            while (reply := self._reader.gets()) is not False:
                self._take(reply)
        except hiredis.ProtocolError as error:
            self.abort(LinkLost(f"the reply is not Redis's protocol ({error})"))

    def _take(self, reply: Any) -> None:
        future, wanted, replies = self._waiting[0]
        if self.at_once is not None:
            self.at_once(reply)
        replies.append(reply)
        if len(replies) < wanted:
            return
        self._waiting.popleft()
        if not future.done():
            future.set_result(replies)
        if self._when_quiet is not None and not self._waiting:
            then, self._when_quiet = self._when_quiet, None
            then(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell those who wait."""
        RedisConnection.ended += 1
        self.abort(LinkLost(str(exc) if exc else "the server closed the connection"))
        if self._when_quiet is not None:
            then, self._when_quiet = self._when_quiet, None
            then(self)

    # Calls

    @property
    def usable(self) -> bool:
        """Whether it is connected, as far as is known."""
        return self._lost is None and self._transport is not None

    def when_quiet(self, then: Callable[[RedisConnection], None]) -> None:
        """Call `then` when every reply has come, at once if none is outstanding.

        The reply to a call that was cancelled may have been read in the turn of the event loop in which it was.
        """
        if self._waiting:
            self._when_quiet = then
        else:
            then(self)

    def send(self, *commands: Sequence[Argument]) -> asyncio.Future[list[Any]]:
        """Send commands together; the future gives one reply for each, errors as values."""
        return self.send_packed(packed_commands(commands), len(commands))

    def send_packed(self, commands: bytes, count: int = 1) -> asyncio.Future[list[Any]]:
        """Send commands that are written out already."""
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        if self._lost is not None or self._transport is None:
            future.set_exception(self._lost or LinkLost("it is not connected"))
            return future
        self.since = self._loop.time()
        self._waiting.append((future, count, []))
        self._transport.write(commands)
        return future

    async def open(self, timeout_seconds: float) -> None:
        """Connect, log in and ask who is there."""
        address = self.address
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._loop.create_connection(lambda: self, address.host, address.port, ssl=address.tls)
                await self._greet()
        except (OSError, TimeoutError) as error:
            self.close()
            reason = str(error) or f"no answer within {timeout_seconds:g} s"
            raise LinkLost(reason) from error
        except BaseException:
            self.close()
            raise

    async def _greet(self) -> None:
        self.server = greeted(self.address, await self.send(*greeting(self.address)))

    def abort(self, error: Exception) -> None:
        """Break the connection: those who wait get `error`."""
        if self._lost is None:
            self._lost = error
            if isinstance(error, LinkLost):
                error.client = self.server.client
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            future = self._waiting.popleft()[0]
            if not future.done():
                future.set_exception(self._lost)

    def close(self) -> None:
        """End it."""
        self.abort(LinkLost("it was closed"))


def packed_commands(commands: Sequence[Sequence[Argument]]) -> bytes:
    """Return commands as they are sent."""
    if len(commands) == 1:
        return packed_command(tuple(commands[0]))
    return b"".join([packed_command(tuple(command)) for command in commands])


def greeting(address: ServerAddress) -> list[Sequence[Argument]]:
    """Return the first commands of a connection: log in and ask who is there."""
    commands: list[Sequence[Argument]] = []
    if address.password is not None:
        login = (address.username, address.password) if address.username else (address.password,)
        commands.append(("AUTH", *login))
    if address.database:
        commands.append(("SELECT", address.database))
    if address.role is Role.MASTER:
        commands.append(("ROLE",))
    if address.role is not Role.SENTINEL:
        commands.append(("INFO", "persistence"))
        commands.append(("CLIENT", "ID"))
    return [*commands, ("INFO", "server")]


def greeted(address: ServerAddress, replies: Sequence[Any]) -> ServerInfo:
    """Read the replies to the greeting; refuse a server that is not what it should be."""
    client_id = 0
    if address.role is not Role.SENTINEL:
        *replies, number, info = replies
        replies.append(info)
        client_id = number if isinstance(number, int) else 0  # an account may not be allowed to ask
    for reply in replies:
        if isinstance(reply, hiredis.ReplyError):
            raise Refused(str(reply))
    if address.role is Role.MASTER and replies[-3][0] != b"master":
        raise LinkLost("it is a replica now")
    server = read_info(b"".join(reply for reply in replies[-2:] if isinstance(reply, bytes)).decode())
    if (refusal := misplaced(address.role, server.mode)) is not None:
        raise refusal
    return server._replace(client_id=client_id)


def read_info(text: str) -> ServerInfo:
    """Read what `INFO server` says; refuse a server that is too old."""
    facts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    version = facts.get("redis_version", "")
    if not new_enough(version):
        oldest = ".".join(map(str, OLDEST))
        raise Refused(f"VERSION it is Redis {version or 'of an unknown version'}, older than {oldest}")
    mode = facts.get("redis_mode") or facts.get("server_mode") or ""
    on_disk = facts.get("aof_enabled") == "1" and tuple(map(int, version.split(".")[:2])) >= WAITS_FOR_DISKS
    return ServerInfo(facts.get("run_id", ""), version, mode, on_disk)


def new_enough(version: str) -> bool:
    """Say whether a version such as 7.0.15 knows the commands the scripts use."""
    numbers = version.split(".")[:2]
    return len(numbers) == len(OLDEST) and all(map(str.isdecimal, numbers)) and tuple(map(int, numbers)) >= OLDEST
