"""An AMQP connection in an event loop: handshake, heartbeats, frames to channels and back.

Godwit speaks the protocol itself because the clients there are spend a task and a future per message: here a window of
publishes is one write, a window of confirms one future, and a delivery goes into a queue without any.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, Final, cast

import pamqp.frame
from pamqp import commands
from pamqp.base import Frame

from godwit.brokers.rabbitmq.amqp import frames
from godwit.brokers.rabbitmq.amqp.channel import Channel
from godwit.brokers.rabbitmq.amqp.errors import ConnectionLost, ServerRefused
from godwit.brokers.rabbitmq.url import Address

CHANNEL_MAX: Final = 2_047
FRAME_MAX: Final = 131_072
_PRODUCT: Final = "godwit"

_frame = struct.Struct(">BHI")
_method = struct.Struct(">I")


class Connection(asyncio.Protocol):
    """A connection that is open until it is lost or closed; `lost` is then called once."""

    def __init__(self, address: Address, *, lost: Callable[[Connection], None]) -> None:
        self.address = address
        self.channels: dict[int, Channel] = {}
        self.frame_max = FRAME_MAX
        self.server: dict[str, Any] = {}
        """The server's properties: product, version, capabilities."""
        self.blocked: str | None = None
        """Why the server takes no publishes now, if it does not."""
        self.changed = asyncio.Event()
        """Set when `blocked` changes or the connection is lost."""
        self.failure: Exception | None = None
        self._lost = lost
        self.opens = self.closes = 0
        """Channels opened and closed on this connection."""
        self._opening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._opened = False
        self._closing: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport
        self._buffer = bytearray()
        self._writable = asyncio.Event()
        self._writable.set()
        self._heartbeat = 0
        self._beat: asyncio.TimerHandle | None = None
        self._heard = 0.0

    @classmethod
    async def open(
        cls, address: Address, *, lost: Callable[[Connection], None], host: tuple[str, int] | None = None
    ) -> Connection:
        """Connect to one of the hosts and shake hands; raises `ServerRefused`, `ConnectionLost` or OSError."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(address.connect_seconds):
            _, connection = await loop.create_connection(
                lambda: cls(address, lost=lost), *(host or address.hosts[0]), ssl=address.tls()
            )
            try:
                await connection.opened()
            except BaseException:
                connection.abort()
                raise
        return connection

    async def opened(self) -> None:
        """Return when the server has let us in."""
        await self._opening
        self._opened = True

    @property
    def alive(self) -> bool:
        """Whether it can be used."""
        return self._opened and self.failure is None

    @property
    def version(self) -> tuple[int, ...]:
        """The server's version; empty when it does not say."""
        words = str(self.server.get("version", "")).split("-")[0].split(".")
        return tuple(int(word) for word in words if word.isdigit())

    async def channel(self, *, confirms: bool = False) -> Channel:
        """Open a channel."""
        number = next(n for n in range(1, CHANNEL_MAX + 1) if n not in self.channels)
        channel = self.channels[number] = Channel(self, number)
        await channel.call(commands.Channel.Open())
        self.opens += 1
        if confirms:
            await channel.call(commands.Confirm.Select())
        return channel

    def write(self, data: bytes) -> None:
        """Send frames."""
        if self.failure is not None:
            raise self.failure
        self._transport.write(data)

    async def drained(self) -> None:
        """Return when the server keeps up with what was written."""
        await self._writable.wait()
        if self.failure is not None:
            raise self.failure

    async def close(self) -> None:
        """Say goodbye and hang up."""
        if not self.alive:
            self.abort()
            return
        self._closing = asyncio.get_running_loop().create_future()
        self.write(pamqp.frame.marshal(commands.Connection.Close(200, "bye", 0, 0), 0))
        try:
            async with asyncio.timeout(2):
                await self._closing
        except TimeoutError:
            pass
        finally:
            self._fail(ConnectionLost("closed"), tell=False)
            self.abort()  # a polite end waits for what was written, and a server may read no more

    def abort(self) -> None:
        """Hang up at once."""
        if hasattr(self, "_transport"):
            self._transport.abort()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(frames.PREAMBLE)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail every call that waits for an answer."""
        self._fail(ConnectionLost(str(exc) if exc else "the server closed the connection"), tell=True)

    def pause_writing(self) -> None:
        """Hold publishers back."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let publishers go on."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Take frames apart; what is incomplete waits for more."""
        self._heard = asyncio.get_running_loop().time()
        buffer = self._buffer
        buffer += data
        at, end = 0, len(buffer)
        while end - at >= frames.OVERHEAD:
            kind, channel, size = _frame.unpack_from(buffer, at)
            if kind == ord("A"):
                self._fail(ServerRefused(505, "the server speaks another protocol version"), tell=True)
                return
            if end - at < size + frames.OVERHEAD:
                break
            payload = bytes(buffer[at + 7 : at + 7 + size])
            at += size + frames.OVERHEAD
            if channel:
                target = self.channels.get(channel)
                if target is not None:
                    target.receive(kind, payload)
            elif kind == frames.METHOD:
                self._control(payload)
        del buffer[:at]

    # The handshake and what the server says about the connection

    def _control(self, payload: bytes) -> None:
        frame = unmarshal(payload, 0)
        match frame:
            case commands.Connection.Start():
                self.server = dict(frame.server_properties)
                self._send(
                    commands.Connection.StartOk(
                        client_properties={
                            "product": _PRODUCT,
                            "connection_name": self.address.name,
                            "capabilities": {
                                "publisher_confirms": True,
                                "connection.blocked": True,
                                "consumer_cancel_notify": True,
                                "basic.nack": True,
                                "authentication_failure_close": True,
                            },
                        },
                        mechanism="PLAIN",
                        response=f"\0{self.address.user}\0{self.address.password}",
                    )
                )
            case commands.Connection.Tune():
                self.frame_max = min(frame.frame_max or FRAME_MAX, FRAME_MAX)
                self._heartbeat = min(frame.heartbeat or self.address.heartbeat, self.address.heartbeat)
                most = min(frame.channel_max or CHANNEL_MAX, CHANNEL_MAX)
                self._send(commands.Connection.TuneOk(most, self.frame_max, self._heartbeat))
                self._send(commands.Connection.Open(virtual_host=self.address.vhost))
                self._keep_alive()
            case commands.Connection.OpenOk():
                if not self._opening.done():
                    self._opening.set_result(None)
            case commands.Connection.Close():
                self._send(commands.Connection.CloseOk())
                self._fail(ServerRefused(frame.reply_code or 0, frame.reply_text), tell=True)
            case commands.Connection.CloseOk():
                if self._closing is not None and not self._closing.done():
                    self._closing.set_result(None)
            case commands.Connection.Blocked():
                self.blocked = frame.reason or "an alarm"
                self.changed.set()
            case commands.Connection.Unblocked():
                self.blocked = None
                self.changed.set()

    def _send(self, frame: Frame) -> None:
        self._transport.write(pamqp.frame.marshal(frame, 0))

    def _keep_alive(self) -> None:
        if not self._heartbeat or self.failure is not None:
            return
        loop = asyncio.get_running_loop()
        if self._heard and loop.time() - self._heard > 2 * self._heartbeat:
            self._fail(ConnectionLost(f"nothing heard for {2 * self._heartbeat} s"), tell=True)
            self._transport.abort()
            return
        self._transport.write(frames.HEARTBEAT_FRAME)
        self._beat = loop.call_later(self._heartbeat / 2, self._keep_alive)

    def _fail(self, failure: Exception, *, tell: bool) -> None:
        if self.failure is not None:
            return
        self.failure = failure
        if self._beat is not None:
            self._beat.cancel()
        self._writable.set()
        self.changed.set()
        if not self._opening.done():
            self._opening.set_exception(failure)
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)
        for channel in list(self.channels.values()):
            channel.fail(failure)
        self.channels.clear()
        if tell and self._opened:
            self._lost(self)


def unmarshal(payload: bytes, channel: int) -> Any:
    """Return a method frame's payload as pamqp's command."""
    return pamqp.frame.unmarshal(_frame.pack(frames.METHOD, channel, len(payload)) + payload + frames.END)[2]
