"""Where messages of one group come in: asked for one by one, or sent ahead by the server while a pull waits."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from pamqp import commands

from godwit.brokers.contract import Place
from godwit.brokers.rabbitmq.amqp.channel import Channel
from godwit.brokers.rabbitmq.amqp.connection import Connection
from godwit.brokers.rabbitmq.amqp.errors import ConnectionLost, ServerRefused
from godwit.brokers.rabbitmq.amqp.frames import Incoming
from godwit.core.background import Background
from godwit.core.errors import GodwitError

LINGER_SECONDS: Final = 1.0
"""So long the server goes on sending after the last listener left: most come back at once."""
STALL_SECONDS: Final = 0.25


class GroupConsumer:
    """A group's channel, its consumer while there is one, and the messages that no pull has taken yet."""

    def __init__(
        self,
        place: Place,
        server_queue: str,
        *,
        prefetch: int,
        connection: Callable[[], asyncio.Future[Connection] | object],
        arrived: Callable[[Place], None],
    ) -> None:
        self.place = place
        self.queue = server_queue
        self.buffer: deque[tuple[Channel, Incoming]] = deque()
        self.listening = 0
        self.held = 0
        """Deliveries of this channel that workers hold; the server counts them against the prefetch."""
        self.wanted = 0
        """What waiting pulls ask for together."""
        self.stalled = False
        """Whether flow control leaves what is here where it is."""
        self.lock = asyncio.Lock()
        self._least = prefetch
        self._connection = connection
        self._arrived = arrived
        self.channel: Channel | None = None
        """Where messages of this place come from."""
        self._tag: str | None = None
        self._prefetch = 0
        self._ending: asyncio.TimerHandle | None = None
        self._background = Background("rabbitmq")

    @property
    def consuming(self) -> bool:
        """Whether the server sends by itself."""
        return self._tag is not None and self.channel is not None and self.channel.alive

    @property
    def ready(self) -> bool:
        """Whether something could be taken."""
        return bool(self.buffer) and not self.stalled

    async def fetch(self, limit: int) -> list[tuple[Channel, Incoming]]:
        """Take up to `limit` messages; the caller holds `lock`."""
        taken: list[tuple[Channel, Incoming]] = []
        if self.listening:
            await self.consume(limit)
            self._drain(taken, limit)
            return taken
        await self._cancel()
        self._drain(taken, limit)
        if len(taken) < limit:
            channel = await self._open()
            taken += [(channel, incoming) for incoming in await channel.get(self.queue, limit - len(taken))]
        return taken

    def _drain(self, taken: list[tuple[Channel, Incoming]], limit: int) -> None:
        while self.buffer and len(taken) < limit:
            channel, incoming = self.buffer.popleft()
            if channel.alive:
                taken.append((channel, incoming))

    def put_back(self, left: list[tuple[Channel, Incoming]]) -> None:
        """Keep what could not be taken now; without a pull for it the server has it back soon."""
        self.buffer.extendleft(reversed(left))
        if self.listening:
            self.stalled = True
            asyncio.get_running_loop().call_later(STALL_SECONDS, self.unstall)
        else:
            self._end_later()

    def unstall(self) -> None:
        """Let listeners look again."""
        if self.stalled:
            self.stalled = False
            self._arrived(self.place)

    @staticmethod
    def _requeue(left: list[tuple[Channel, Incoming]]) -> None:
        for channel, incoming in left:
            if channel.alive:
                channel.requeue([incoming.tag])

    async def consume(self, limit: int) -> None:
        """Let the server send ahead, as much as is held and wanted."""
        needed = max(self._least, self.held + max(limit, self.wanted))
        if self.consuming and self._prefetch >= needed:
            return
        await self._cancel()
        channel = await self._open()
        self._prefetch = min(needed, 65_535)
        self._tag = secrets.token_hex(8)

        def receive(incoming: Incoming) -> None:
            self.buffer.append((channel, incoming))
            self._arrived(self.place)

        await channel.consume(self.queue, self._prefetch, receive, self._tag)

    async def _cancel(self) -> None:
        tag, self._tag = self._tag, None
        if tag is not None and self.channel is not None and self.channel.alive:
            # What was sent before the answer is in the buffer when the answer comes.
            await self.channel.call(commands.Basic.Cancel(consumer_tag=tag))

    async def _open(self) -> Channel:
        if self.channel is None or not self.channel.alive:
            connection = await self._connection()  # type: ignore[misc]
            self.channel = await connection.channel()
            self.channel.cancelled = self._ended_by_server
            self._tag = None
            self.held = 0
        return self.channel

    def _ended_by_server(self) -> None:
        self._tag = None
        self._arrived(self.place)

    # Listeners come and go

    def enter(self) -> None:
        """Count a listener."""
        self.listening += 1
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None

    def leave(self) -> None:
        """Count a listener out; the last one ends the sending ahead, a little later."""
        self.listening -= 1
        if not self.listening:
            self._end_later()

    def _end_later(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        self._ending = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._end)

    def begin(self) -> None:
        """Begin sending ahead in the background."""
        self._spawn(self._begin())

    async def _begin(self) -> None:
        async with self.lock:
            if self.listening:
                await self.consume(0)

    def _end(self) -> None:
        self._spawn(self._finish())

    async def _finish(self) -> None:
        async with self.lock:
            if not self.listening:
                await self._cancel()
                left = list(self.buffer)
                self.buffer.clear()
                self._requeue(left)

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Do something beside the caller; when the link is lost it is left: reconnecting begins anew."""
        self._background.once("rabbitmq errand", work, expected=(ConnectionLost, ServerRefused, GodwitError, OSError))

    def lost(self) -> None:
        """Forget what the lost connection had sent."""
        self.buffer.clear()
        self.channel, self._tag, self.held, self.stalled = None, None, 0, False

    def close(self) -> None:
        """Stop the timer."""
        if self._ending is not None:
            self._ending.cancel()
