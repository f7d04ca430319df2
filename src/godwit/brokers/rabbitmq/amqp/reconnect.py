"""A robust connection: it comes back by itself, with everything declared again, and publishes in windows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Final

import msgspec

from godwit.brokers.rabbitmq.amqp.channel import Channel
from godwit.brokers.rabbitmq.amqp.connection import Connection
from godwit.brokers.rabbitmq.amqp.errors import ConnectionLost, ServerRefused
from godwit.brokers.rabbitmq.amqp.frames import Outgoing
from godwit.brokers.rabbitmq.url import Address
from godwit.core.background import Background
from godwit.core.errors import BrokerBusy, BrokerClosed, BrokerError, BrokerUnavailable, GodwitError, InvalidMessage
from godwit.core.logs import get_logger

OLDEST: Final = (3, 10)
_ACCESS_REFUSED: Final = 403
_NOT_ALLOWED: Final = 530
_PRECONDITION: Final = 406
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0

log = get_logger(__name__)


class ConnectionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a broker is connected, and the channels it opened and closed so far."""

    connected: bool
    channel_opens: int
    channel_closes: int


class ReconnectingConnection:
    """The connection of one broker, as long as the broker is open."""

    def __init__(
        self,
        address: Address,
        *,
        restore: Callable[[Connection], Awaitable[None]],
        lost: Callable[[], None],
    ) -> None:
        self.address = address
        self._restore = restore
        self._lost = lost
        self._connection: Connection | None = None
        self._publisher: Channel | None = None
        self._opening_publisher = asyncio.Lock()
        self._ready = asyncio.Event()
        self._background = Background("rabbitmq")
        self._returning: asyncio.Task[None] | None = None
        self._closed = False
        self._reason = "it is not connected"
        self._opens = self._closes = 0
        self._host = 0

    @property
    def counts(self) -> ConnectionCounts:
        """Whether it is connected, and the channels opened and closed so far."""
        current = self._connection
        opens, closes = (current.opens, current.closes) if current is not None else (0, 0)
        return ConnectionCounts(
            connected=self._ready.is_set(), channel_opens=self._opens + opens, channel_closes=self._closes + closes
        )

    @property
    def version(self) -> tuple[int, ...]:
        """The server's version."""
        return self._connection.version if self._connection is not None else ()

    async def open(self) -> None:
        """Connect for the first time; what stands in the way is raised."""
        failure: GodwitError | None = None
        for _ in self.address.hosts:
            try:
                await self._connect()
            except BrokerUnavailable as error:
                failure = error
                self._host += 1
            else:
                return
        raise failure or BrokerUnavailable(self.address.shown, self._reason, "Name a host in the URL.")

    async def close(self) -> None:
        """Hang up and stay so."""
        self._closed = True
        if self._returning is not None:
            self._returning.cancel()
            await asyncio.wait([self._returning])
        connection = self._connection
        if connection is not None:
            await connection.close()
        self._ready.clear()

    async def connection(self, *, within: float | None = None) -> Connection:
        """Return the connection; wait for it while it comes back."""
        if not self._ready.is_set():
            if self._closed:
                raise BrokerClosed(self.address.shown)
            try:
                async with asyncio.timeout(self.address.publish_seconds if within is None else within):
                    await self._ready.wait()
            except TimeoutError:
                remedy = "Godwit goes on trying; nothing accepted is lost. Check that the server runs."
                raise BrokerUnavailable(self.address.shown, self._reason, remedy) from None
        if self._connection is None:
            raise BrokerClosed(self.address.shown)
        return self._connection

    async def send(self, messages: Sequence[Outgoing]) -> bytearray:
        """Publish a window and return what became of each message; what was not confirmed is sent again."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.address.publish_seconds
        while True:
            left = deadline - loop.time()
            try:
                async with asyncio.timeout(max(left, 0)):
                    return await self._send(messages, left)
            except TimeoutError:
                raise self._too_late() from None
            except ConnectionLost:
                if self._closed:
                    raise BrokerClosed(self.address.shown) from None
            except ServerRefused as refusal:
                if refusal.code == _PRECONDITION and "size" in refusal.text:
                    remedy = "Store large content elsewhere, or raise max_message_size on the server."
                    raise InvalidMessage("size", f"is refused by the server ({refusal.text})", remedy) from refusal
                if loop.time() >= deadline:
                    raise BrokerUnavailable(self.address.shown, str(refusal), "See the server's log.") from refusal
                await asyncio.sleep(_FIRST_PAUSE)

    async def _send(self, messages: Sequence[Outgoing], left: float) -> bytearray:
        connection = await self.connection(within=left)
        while connection.blocked is not None and connection.alive:
            if not self.address.wait_when_blocked:
                raise self._blocked(connection.blocked)
            # The server would stop reading this connection, acks included, if anything were published now.
            connection.changed.clear()
            await connection.changed.wait()
        channel = await self._publishing(connection)
        if self.address.wait_when_blocked:
            return await channel.publish(messages)
        return await self._unless_blocked(connection, channel.publish(messages))

    async def _unless_blocked(self, connection: Connection, publish: Coroutine[None, None, bytearray]) -> bytearray:
        """Give a publish up when the server blocks while it is under way; it may still be stored later."""
        sending = asyncio.ensure_future(publish)
        try:
            while not sending.done():
                connection.changed.clear()
                changed = asyncio.ensure_future(connection.changed.wait())
                await asyncio.wait([sending, changed], return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                if connection.blocked is not None and not sending.done():
                    raise self._blocked(connection.blocked)
            return await sending
        finally:
            sending.cancel()

    async def _publishing(self, connection: Connection) -> Channel:
        async with self._opening_publisher:
            if self._publisher is None or not self._publisher.alive:
                self._publisher = await connection.channel(confirms=True)
            return self._publisher

    async def renew(self) -> None:
        """Publish on a new channel from now on.

        A channel that met a queue without a leader may go on refusing for it after the election.
        """
        old, self._publisher = self._publisher, None
        if old is not None and old.idle:
            await old.close()

    def _blocked(self, reason: str) -> BrokerUnavailable:
        remedy = "Free memory or disk on the server; publish again then. Consumers go on working."
        return BrokerUnavailable(self.address.shown, f"the server blocks publishers ({reason})", remedy)

    def _too_late(self) -> BrokerError:
        connection = self._connection
        if connection is not None and connection.blocked is not None:
            return self._blocked(connection.blocked)
        if not self._ready.is_set():
            remedy = "Godwit goes on trying. Publish again: what was stored is recognised by its ids."
            return BrokerUnavailable(self.address.shown, self._reason, remedy)
        if self._publisher is not None:
            # Its late confirms must not be counted for the next window.
            self._publisher.fail(ConnectionLost("a publish timed out"))
        return BrokerBusy("publish", self.address.publish_seconds)

    # Coming back

    async def _connect(self) -> None:
        address = self.address
        host = address.hosts[self._host % len(address.hosts)]
        try:
            connection = await Connection.open(address, lost=self._gone, host=host)
        except (OSError, TimeoutError, ConnectionLost, ServerRefused) as error:
            raise self._unreachable(error, host) from error
        if connection.version and connection.version[:2] < OLDEST:
            await connection.close()
            shown = ".".join(map(str, connection.version))
            raise BrokerUnavailable(address.shown, f"RabbitMQ {shown} is too old", "Godwit needs 3.10 or newer.")
        try:
            await self._prepare(connection)
        except BaseException as error:  # also when the broker is closed meanwhile: no other code knows this connection
            connection.abort()
            if isinstance(error, (ConnectionLost, ServerRefused)):
                raise self._unreachable(error, host) from error
            raise
        if self._connection is not None:
            self._opens += self._connection.opens
            self._closes += self._connection.closes
        self._connection, self._publisher = connection, None
        self._ready.set()

    async def _prepare(self, connection: Connection) -> None:
        await self._restore(connection)
        if connection.failure is not None:
            raise connection.failure

    def _unreachable(self, error: BaseException, host: tuple[str, int]) -> BrokerUnavailable:
        address = self.address
        if isinstance(error, ServerRefused) and error.code == _ACCESS_REFUSED:
            remedy = "Check user and password in the URL (guest may only log in from the server's own machine)."
            return BrokerUnavailable(address.shown, f"login refused ({error.text})", remedy)
        if isinstance(error, ServerRefused) and error.code == _NOT_ALLOWED:
            remedy = (
                f"Create virtual host {address.vhost!r} or give user {address.user!r} permissions on it (rabbitmqctl)."
            )
            return BrokerUnavailable(address.shown, error.text, remedy)
        reason = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        remedy = f"Check that RabbitMQ runs at {host[0]}:{host[1]} and that the URL is right."
        return BrokerUnavailable(address.shown, reason, remedy)

    def _gone(self, connection: Connection) -> None:
        if connection is not self._connection:
            return
        self._ready.clear()
        self._reason = f"the connection was lost ({connection.failure})"
        self._lost()
        if not self._closed:
            log.warning("connection to RabbitMQ lost", url=self.address.shown, reason=str(connection.failure))
            self._returning = self._background.keep("reconnect", self._come_back).task

    async def _come_back(self) -> None:
        pause = _FIRST_PAUSE
        while not self._closed:
            try:
                await self._connect()
            except GodwitError as error:
                self._reason = str(error)
                self._host += 1
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                log.info("connected to RabbitMQ again", url=self.address.shown)
                return
