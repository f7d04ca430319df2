"""Running systems whose environment has been set, as the table of effects looks at them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from godwit.brokers.contract import DeadLetter
from godwit.config import load
from godwit.core.messages.message import Message
from godwit.core.names import QueueName
from godwit.manager import MessageQueueManager
from godwit.testing import InMemoryManager, in_memory, run_until_empty
from tests.waiting import eventually

Q = QueueName("q")
Handler = Callable[[Any], Coroutine[Any, Any, object]]


class World:
    """An environment that can be set, and systems that read it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch

    def set(self, **variables: str) -> None:
        """Set environment variables."""
        for name, text in variables.items():
            self._monkeypatch.setenv(name, text)

    def manager(self, **options: Any) -> MessageQueueManager:
        """Return a manager on a SQLite file, or wherever the environment says."""
        self._monkeypatch.chdir(self.folder)
        return MessageQueueManager.from_url(**options)

    def in_memory(self) -> InMemoryManager:
        """Return a manager whose clock is set by hand."""
        return in_memory(load(arguments={"broker_url": "memory://"}))

    @asynccontextmanager
    async def declared(self, **options: Any) -> AsyncIterator[MessageQueueManager]:
        """Give an open manager whose queue `q` is declared as the configuration says."""
        async with self.manager(**options) as mq:
            await mq.broker.declare(mq.settings.queue(Q).spec)
            yield mq

    @asynccontextmanager
    async def at_work(self, handler: Handler, **options: Any) -> AsyncIterator[MessageQueueManager]:
        """Give an open manager whose worker handles queue `q`."""
        mq = self.manager()
        mq.consumer(Q, **options)(handler)
        async with mq:
            worker = mq.worker()
            running = asyncio.create_task(worker.run())
            try:
                yield mq
            finally:
                worker.stop()
                await running

    async def failing(self, error: Exception | None = None) -> tuple[list[float], list[DeadLetter]]:
        """Let a message fail at every delivery; return the seconds between them and the dead letters."""
        mq = self.in_memory()
        at: list[int] = []

        @mq.consumer(Q)
        async def handler(_: Message) -> None:
            at.append(mq.clock.now_ms())
            raise error or ConnectionError("refused")

        async with mq:
            await mq.enqueue(Message(queue=Q))
            await run_until_empty(mq)
            letters = await mq.broker.dead_letters.page(Q)
        return [(later - earlier) / 1000 for earlier, later in pairwise(at)], letters


async def soon(condition: Callable[[], object]) -> None:
    """Wait for something that the variable makes happen long before its default would."""
    await eventually(lambda: bool(condition()), within=timedelta(seconds=4))
