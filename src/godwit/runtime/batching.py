"""Publishing with as few round trips as there can be, and none of them waited for on purpose.

An idle batcher publishes at once. While a publish is under way later calls gather; when it returns they go together, at
most `PUBLISH_CHUNK` a call. Every caller gets the outcome of its own message:

* what the broker refuses (a full queue, an unknown one) concerns one message, so the others of the call go again alone;
* what the broker cannot do (unreachable, closed) concerns all of them;
* a caller that goes away takes its message with it while that waits, and nobody else's in any case.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from godwit.brokers.contract import PUBLISH_CHUNK, Receipt
from godwit.core.envelope import Envelope
from godwit.core.errors import BrokerError, PartialPublish

Publish: TypeAlias = Callable[[Sequence[Envelope]], Awaitable[list[Receipt]]]
Waiting: TypeAlias = tuple[Envelope, "asyncio.Future[Receipt]"]


class Batcher:
    """Gathers messages of concurrent callers into publishes of one event loop."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._waiting: deque[Waiting] = deque()
        self._busy = False
        self._drain: asyncio.Task[None] | None = None

    async def publish(self, envelope: Envelope) -> Receipt:
        """Publish one message: at once when idle, otherwise together with others as soon as the line is free."""
        if self._busy:
            future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
            self._waiting.append((envelope, future))
            return await future
        self._busy = True
        try:
            return (await self._publish((envelope,)))[0]
        finally:
            # Also when this caller was cancelled: those who gathered meanwhile are not its business to drop.
            self._busy = False
            if self._waiting:
                self._go_on()

    async def flush(self) -> None:
        """Return when nothing that gathered is under way, even for callers that went away."""
        while self._drain is not None:
            await asyncio.wait({self._drain})

    def _go_on(self) -> None:
        self._busy = True
        self._drain = asyncio.create_task(self._empty(), name="godwit-publish")

    async def _empty(self) -> None:
        batch: list[Waiting] = []
        try:
            while batch := self._gathered():
                await self._send(batch)
        finally:
            # Only a cancelled task (the loop is closing) leaves anybody behind.
            for _, future in (*batch, *self._waiting):
                future.cancel()
            self._waiting.clear()
            self._busy, self._drain = False, None

    def _gathered(self) -> list[Waiting]:
        batch: list[Waiting] = []
        while self._waiting and len(batch) < PUBLISH_CHUNK:
            envelope, future = self._waiting.popleft()
            if not future.done():  # its caller went away
                batch.append((envelope, future))
        # The broker stores runs of one queue as chunks; the order inside a queue stays.
        batch.sort(key=lambda waiting: waiting[0].queue)
        return batch

    async def _send(self, batch: list[Waiting]) -> None:
        try:
            receipts = await self._publish([envelope for envelope, _ in batch])
        except PartialPublish as error:
            accepted = len(error.accepted)
            for envelope, future in batch[:accepted]:
                _answer(future, Receipt(envelope.id, fresh=True))
            await asyncio.gather(*(self._alone(*waiting) for waiting in batch[accepted:]))
        except BrokerError as error:
            for _, future in batch:
                _refuse(future, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it reaches the caller
            if len(batch) == 1:
                _refuse(batch[0][1], error)
            else:
                await asyncio.gather(*(self._alone(*waiting) for waiting in batch))
        else:
            for (_, future), receipt in zip(batch, receipts, strict=True):
                _answer(future, receipt)

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
