"""Publishing with as few round trips as there can be, and none of them waited for on purpose.

An idle batcher publishes at once. While a publish is under way later calls gather; when it returns they go together, at
most `PUBLISH_CHUNK` a call. Where the broker works while its clients do, two publishes are under way, unless a message
has an ordering key. Every caller gets the outcome of its own message:

* what the broker refuses (a full queue, an unknown one) concerns one message, so the others of the call go again alone,
  those of one ordering key one after the other;
* what the broker cannot do (unreachable, closed) concerns all of them;
* a caller that goes away takes its message with it while that waits, and no other caller's in any case.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from godwit.brokers.contract import PUBLISH_CHUNK, Receipt
from godwit.core.errors import BrokerError, PartialPublish
from godwit.core.messages.envelope import Envelope

Publish: TypeAlias = Callable[[Sequence[Envelope]], Awaitable[list[Receipt]]]
Waiting: TypeAlias = tuple[Envelope, "asyncio.Future[Receipt]"]
FEW: Final = 16
"""So many messages are not worth two round trips."""


class Batcher:
    """Gathers messages of concurrent callers into publishes of one event loop."""

    def __init__(self, publish: Publish, at_once: int = 1) -> None:
        self._publish, self._at_once = publish, at_once
        self._waiting: deque[Waiting] = deque()
        self._publishes = 0
        """How many are under way."""
        self._messages = 0
        """How many messages are in those."""
        self._ordered = 0
        """How many messages with an ordering key wait or are under way."""
        self._drains: set[asyncio.Task[None]] = set()
        self._starting = False

    async def publish(self, envelope: Envelope) -> Receipt:
        """Publish one message: at once when idle, otherwise together with others as soon as the line is free."""
        self._ordered += envelope.ordering_key is not None
        if self._publishes or self._waiting:
            future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
            self._waiting.append((envelope, future))
            self._go_on()
            return await future
        self._publishes, self._messages = 1, 1
        try:
            return (await self._publish((envelope,)))[0]
        finally:
            # Also when this caller was cancelled: those who gathered meanwhile are not its business to drop.
            self._publishes -= 1
            self._messages -= 1
            self._ordered -= envelope.ordering_key is not None
            self._go_on()

    async def flush(self) -> None:
        """Return when nothing that gathered is under way, even for callers that went away."""
        while self._drains:
            await asyncio.wait(self._drains)

    def _go_on(self) -> None:
        """Send in the next turn what has gathered until then, if another publish may be under way."""
        if self._waiting and not self._starting and self._is_free():
            self._starting = True
            drain = asyncio.create_task(self._empty(), name="godwit-publish")
            self._drains.add(drain)
            drain.add_done_callback(self._drains.discard)

    def _is_free(self) -> bool:
        """Say whether one more publish may be under way: beside another one only where no order is to be kept."""
        return not self._publishes or (self._publishes < self._at_once and not self._ordered)

    async def _empty(self) -> None:
        self._starting = False
        batch: list[Waiting] = []
        try:
            while self._is_free() and (batch := self._gathered()):
                await self._carry(batch)
        except BaseException:
            # Only a cancelled task (the loop is closing) leaves callers behind.
            for _, future in (*batch, *self._waiting):
                future.cancel()
            self._waiting.clear()
            raise

    async def _carry(self, batch: list[Waiting]) -> None:
        self._publishes += 1
        self._messages += len(batch)
        self._go_on()  # with what was left for another publish
        try:
            await self._send(batch)
        finally:
            self._publishes -= 1
            self._messages -= len(batch)
            self._ordered -= sum(envelope.ordering_key is not None for envelope, _ in batch)

    def _gathered(self) -> list[Waiting]:
        batch: list[Waiting] = []
        most = self._most()
        while self._waiting and len(batch) < most:
            envelope, future = self._waiting.popleft()
            if future.done():  # its caller went away
                self._ordered -= envelope.ordering_key is not None
            else:
                batch.append((envelope, future))
        # The broker stores runs of one queue as chunks; the order inside a queue stays.
        batch.sort(key=lambda waiting: waiting[0].queue)
        return batch

    def _most(self) -> int:
        """Return how many messages to take: half of them when little is under way and two publishes may be.

        While the server stores one half, the callers of the other prepare their next messages.
        """
        count = len(self._waiting)
        if self._at_once == 1 or self._ordered or count <= FEW or self._messages >= count // 2:
            return PUBLISH_CHUNK
        return min(PUBLISH_CHUNK, -(-count // 2))

    async def _send(self, batch: list[Waiting]) -> None:
        try:
            receipts = await self._publish([envelope for envelope, _ in batch])
        except PartialPublish as error:
            accepted = len(error.accepted)
            for envelope, future in batch[:accepted]:
                _answer(future, Receipt(envelope.id, fresh=True))
            await self._each_alone(batch[accepted:])
        except BrokerError as error:
            for _, future in batch:
                _refuse(future, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it reaches the caller
            if len(batch) == 1:
                _refuse(batch[0][1], error)
            else:
                await self._each_alone(batch)
        else:
            for (_, future), receipt in zip(batch, receipts, strict=True):
                _answer(future, receipt)

    async def _each_alone(self, batch: Sequence[Waiting]) -> None:
        """Publish messages one by one: those of one ordering key in their order, the others side by side."""
        lines: dict[object, list[Waiting]] = {}
        for place, waiting in enumerate(batch):
            envelope = waiting[0]
            key = place if envelope.ordering_key is None else (envelope.queue, envelope.ordering_key)
            lines.setdefault(key, []).append(waiting)
        await asyncio.gather(*(self._one_after_the_other(line) for line in lines.values()))

    async def _one_after_the_other(self, line: Sequence[Waiting]) -> None:
        for waiting in line:
            await self._alone(*waiting)

    async def _alone(self, envelope: Envelope, future: asyncio.Future[Receipt]) -> None:
        try:
            receipts = await self._publish((envelope,))
        except Exception as error:  # noqa: BLE001 - whatever it is, it reaches the caller
            _refuse(future, error)
        else:
            _answer(future, receipts[0])


def _answer(future: asyncio.Future[Receipt], receipt: Receipt) -> None:
    if not future.done():
        future.set_result(receipt)


def _refuse(future: asyncio.Future[Receipt], error: Exception) -> None:
    if not future.done():
        # One object raised in many tasks would collect all their tracebacks.
        own = copy.copy(error)
        own.__cause__ = error.__cause__
        future.set_exception(own)
