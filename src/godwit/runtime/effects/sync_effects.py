"""The outbox and `once` for synchronous programs: their connection is used in the thread that calls.

Connections of SQLite and Django belong to one thread, so these calls do not go through the bridge's event loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from godwit.core.errors import InvalidSetting
from godwit.core.messages.message import Message
from godwit.core.names import MessageId
from godwit.runtime.effects.once import Once, Turn
from godwit.runtime.effects.outbox import OutboxWriter

T = TypeVar("T")


def refuse_asynchronous(connection: Any) -> None:
    """Refuse a connection whose calls have to be awaited."""
    if inspect.iscoroutinefunction(getattr(connection, "close", None)):
        raise InvalidSetting("connection", type(connection).__name__, "a synchronous connection, where mq.sync is used")


def run_here(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in this thread, without an event loop: one on a synchronous connection never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise InvalidSetting("connection", "an asynchronous one", "a synchronous connection, where mq.sync is used")


class SyncOutbox:
    """Publishes inside one transaction of a synchronous application; nothing leaves before it commits."""

    def __init__(self, writer: OutboxWriter) -> None:
        self._writer = writer

    def enqueue(
        self, message: Message, *, scheduled_at: datetime | None = None, expires_at: datetime | None = None
    ) -> MessageId:
        """Write a message to the outbox and return its id; the two times override the message's own."""
        return run_here(self._writer.enqueue(message, scheduled_at=scheduled_at, expires_at=expires_at))

    def enqueue_many(self, messages: Iterable[Message]) -> list[MessageId]:
        """Write messages to the outbox; one that cannot be accepted refuses them all."""
        return run_here(self._writer.enqueue_many(messages))


class SyncOnce:
    """An effect under one key, with `with`; see `MessageQueueManager.once`."""

    def __init__(self, once: Once, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._once, self._run = once, run

    def __enter__(self) -> Turn:
        """Claim the key; raises `EffectHeld` while another worker holds it."""
        turn: Turn = self._run(self._once.__aenter__())
        return turn

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Mark the key done, or give it back when the effect did not happen."""
        self._run(self._once.__aexit__(kind, error, trace))
