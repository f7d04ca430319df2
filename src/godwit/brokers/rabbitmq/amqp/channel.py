"""An AMQP channel: calls, windows of publishes with their confirms, one consumer, gets."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import pamqp.frame
from pamqp import commands
from pamqp.base import Frame

from godwit.brokers.rabbitmq.amqp import frames
from godwit.brokers.rabbitmq.amqp.errors import ServerRefused
from godwit.brokers.rabbitmq.amqp.frames import Incoming, Outgoing

if TYPE_CHECKING:
    from godwit.brokers.rabbitmq.amqp.connection import Connection

OPEN: Final = 0
CONFIRMED: Final = 1
REFUSED: Final = 2
UNROUTABLE: Final = 3

_method = struct.Struct(">I")
_WRITE_BYTES: Final = 256 * 1024


class ConfirmWindow:
    """Publishes that were sent together, and what became of each."""

    __slots__ = ("done", "first", "left", "outcomes", "sent", "unroutable")

    def __init__(self, first: int, sent: Sequence[Outgoing], done: asyncio.Future[None]) -> None:
        self.first = first
        self.sent = sent
        self.outcomes = bytearray(len(sent))
        self.left = len(sent)
        self.unroutable: set[int] = set()
        self.done = done

    def mark(self, start: int, stop: int, outcome: int) -> None:
        """Set what became of the publishes with these tags, where it is still open."""
        for index in range(max(start - self.first, 0), min(stop - self.first, len(self.outcomes))):
            if self.outcomes[index] == OPEN:
                # A message that was returned is confirmed all the same.
                self.outcomes[index] = UNROUTABLE if index in self.unroutable else outcome
                self.left -= 1
        if not self.left and not self.done.done():
            self.done.set_result(None)

    def returned(self, message_id: str | None, routing_key: str) -> bool:
        """Mark the publish that the server could not route."""
        for index, message in enumerate(self.sent):
            if (
                self.outcomes[index] == OPEN
                and index not in self.unroutable
                and message.message_id == message_id
                and message.routing_key == routing_key
            ):
                self.unroutable.add(index)
                return True
        return False


class Channel:
    """A channel that is open until the server or the connection ends it."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.number = number
        self.failure: Exception | None = None
        self.cancelled: Callable[[], None] | None = None
        """Called when the server ends the consumer (its queue was removed)."""
        self._connection = connection
        self._answers: deque[asyncio.Future[Any]] = deque()
        self._published = 0
        self._windows: deque[ConfirmWindow] = deque()
        self._receive: Callable[[Incoming], None] | None = None
        self._gets: deque[asyncio.Future[tuple[Incoming, int] | None]] = deque()
        self._head: tuple[int, bytes] | None = None
        self._properties: frames.Properties | None = None
        self._missing = 0
        self._pieces: list[bytes] = []

    @property
    def alive(self) -> bool:
        """Whether it can be used."""
        return self.failure is None and self._connection.failure is None

    @property
    def idle(self) -> bool:
        """Whether every publish is decided."""
        return not self._windows

    # Calls

    async def call(self, frame: Frame) -> Any:
        """Carry out a method and return the server's answer."""
        return (await self.call_all([frame]))[0]

    async def call_all(self, frames: Sequence[Frame]) -> list[Any]:
        """Carry out methods in one go and return the server's answers; the first refusal ends the channel."""
        self._check()
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[Any]] = [loop.create_future() for _ in frames]
        self._answers.extend(answers)
        self._connection.write(b"".join([pamqp.frame.marshal(frame, self.number) for frame in frames]))
        # A caller that gives up leaves its place in the row: the answer still comes.
        return [await asyncio.shield(answer) for answer in answers]

    async def publish(self, messages: Sequence[Outgoing]) -> bytearray:
        """Send messages as one window; return for each CONFIRMED, REFUSED or UNROUTABLE when all are decided."""
        self._check()
        window = ConfirmWindow(self._published + 1, messages, asyncio.get_running_loop().create_future())
        self._windows.append(window)
        self._published += len(messages)
        unsent, size = list[bytes](), 0
        for message in messages:
            frame = frames.publish(self.number, message, self._connection.frame_max)
            unsent.append(frame)
            size += len(frame)
            if size > _WRITE_BYTES:
                # No await inside: the tags of two windows must not mix.
                self._connection.write(b"".join(unsent))
                unsent, size = [], 0
        self._connection.write(b"".join(unsent))
        await self._connection.drained()
        await window.done
        return window.outcomes

    async def consume(self, queue: str, prefetch: int, receive: Callable[[Incoming], None], tag: str) -> None:
        """Let the server send messages of a queue, at most `prefetch` ahead of their acks."""
        await self.call(commands.Basic.Qos(prefetch_count=prefetch))
        self._receive = receive
        await self.call(commands.Basic.Consume(queue=queue, consumer_tag=tag))

    async def get(self, queue: str, limit: int) -> list[Incoming]:
        """Take up to `limit` messages that are there now."""
        found: list[Incoming] = []
        wanted = 1
        while wanted > 0:
            self._check()
            loop = asyncio.get_running_loop()
            futures: list[asyncio.Future[tuple[Incoming, int] | None]] = [loop.create_future() for _ in range(wanted)]
            self._gets.extend(futures)
            self._connection.write(frames.get(self.number, queue) * wanted)
            answers = [answer for answer in await asyncio.gather(*futures) if answer is not None]
            found += [incoming for incoming, _ in answers]
            # The first answer says how many are left, so that an empty queue costs one question, not `limit`.
            wanted = min(limit - len(found), answers[-1][1]) if len(answers) == wanted else 0
        return found

    def ack(self, tags: Iterable[int]) -> None:
        """Acknowledge deliveries."""
        self._check()
        self._connection.write(b"".join([frames.ack(self.number, tag) for tag in tags]))

    def requeue(self, tags: Iterable[int]) -> None:
        """Give deliveries back to the queue."""
        self._check()
        self._connection.write(b"".join([frames.nack(self.number, tag, requeue=True) for tag in tags]))

    async def close(self) -> None:
        """Close it in good order."""
        if self.alive:
            await self.call(commands.Channel.Close(200, "", 0, 0))
            self.fail(ServerRefused(200, "closed"))
            self._connection.channels.pop(self.number, None)

    def fail(self, failure: Exception) -> None:
        """End everything that waits for the server."""
        if self.failure is not None:
            return
        self.failure = failure
        self._connection.closes += 1
        waiting: list[asyncio.Future[Any]] = [*self._answers, *self._gets, *(window.done for window in self._windows)]
        for future in waiting:
            if not future.done():
                future.set_exception(failure)
                future.exception()  # the one who waited may be gone
        self._answers.clear()
        self._windows.clear()
        self._gets.clear()

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    # Called by the connection

    def receive(self, kind: int, payload: bytes) -> None:
        """Take one frame of this channel."""
        if kind == frames.METHOD:
            self._method(_method.unpack_from(payload)[0], payload)
        elif kind == frames.HEADER:
            self._missing, self._properties = frames.header(payload)
            self._pieces = []
            if not self._missing:
                self._complete()
        elif kind == frames.BODY:
            self._pieces.append(payload)
            self._missing -= len(payload)
            if self._missing <= 0:
                self._complete()

    def _method(self, method: int, payload: bytes) -> None:
        if method in (frames.BASIC_DELIVER, frames.BASIC_GET_OK, frames.BASIC_RETURN):
            self._head = (method, payload)
        elif method in (frames.BASIC_ACK, frames.BASIC_NACK):
            tag, multiple = frames.tag_of(payload)
            self._confirm(tag, multiple=multiple, outcome=CONFIRMED if method == frames.BASIC_ACK else REFUSED)
        elif method == frames.BASIC_GET_EMPTY:
            self._got(None)
        else:
            self._rare(payload)

    def _rare(self, payload: bytes) -> None:
        from godwit.brokers.rabbitmq.amqp.connection import unmarshal

        frame = unmarshal(payload, self.number)
        if isinstance(frame, commands.Channel.Close):
            self._connection.write(pamqp.frame.marshal(commands.Channel.CloseOk(), self.number))
            self._connection.channels.pop(self.number, None)
            self.fail(ServerRefused(frame.reply_code or 0, frame.reply_text))
        elif isinstance(frame, commands.Basic.Cancel):
            if self.cancelled is not None:
                self.cancelled()
        elif self._answers:
            answer = self._answers.popleft()
            if not answer.done():
                answer.set_result(frame)

    def _complete(self) -> None:
        head, properties = self._head, self._properties
        self._head = self._properties = None
        if head is None or properties is None:
            return
        method, payload = head
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces = []
        if method == frames.BASIC_RETURN:
            from godwit.brokers.rabbitmq.amqp.connection import unmarshal

            key = unmarshal(payload, self.number).routing_key
            any(window.returned(properties.message_id, key) for window in self._windows)
            return
        tag, redelivered, key, left = frames.delivered(payload, method)
        incoming = Incoming(tag, redelivered, key, properties, body)
        if method == frames.BASIC_GET_OK:
            self._got((incoming, left))
        elif self._receive is not None:
            self._receive(incoming)

    def _got(self, answer: tuple[Incoming, int] | None) -> None:
        future = self._gets.popleft()
        if not future.done():
            future.set_result(answer)

    def _confirm(self, tag: int, *, multiple: bool, outcome: int) -> None:
        for window in self._windows:
            if window.first > tag:
                break
            window.mark(window.first if multiple else tag, tag + 1, outcome)
        while self._windows and not self._windows[0].left:
            self._windows.popleft()
