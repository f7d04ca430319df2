"""What the tests of admin hold: queues with dead letters in them, made the way workers make them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from godwit.brokers.contract import Broker, DeadLetter, GiveUp
from godwit.core.clock import ManualClock, from_ms
from godwit.core.failures.failure import ErrorType, FailureKind, ProcessingError
from godwit.core.messages.envelope import Envelope, seal_all
from godwit.core.messages.message import Message
from godwit.core.names import DEFAULT_GROUP, GroupName, MessageId, QueueName

LEASE = timedelta(seconds=30)
Q = QueueName("orders")


def error(
    text: str = "ValueError: no such user 7", *, type: ErrorType = ErrorType.UNKNOWN, at_ms: int = 0
) -> ProcessingError:
    return ProcessingError(type=type, message=text, retryable=False, timestamp=from_ms(at_ms), traceback=f"at\n{text}")


def messages(*ids: str, queue: QueueName = Q, type: str = "order") -> list[Message]:
    return [Message(id=MessageId(name), queue=queue, type=type, payload={"id": name}, priority=40) for name in ids]


async def bury(
    broker: Broker,
    envelopes: Sequence[Envelope],
    *,
    group: str = DEFAULT_GROUP,
    kind: FailureKind = FailureKind.PERMANENT,
    error: ProcessingError | None = None,
) -> None:
    """Publish messages of one queue and give each of them up."""
    for start in range(0, len(envelopes), 5_000):
        some = envelopes[start : start + 5_000]
        await broker.publish(some)
        deliveries = await broker.pull(some[0].queue, GroupName(group), worker="w", limit=len(some), lease=LEASE)
        await broker.settle([GiveUp(delivery.ack_id, kind, error) for delivery in deliveries])


async def bury_ids(
    broker: Broker,
    *ids: str,
    queue: QueueName = Q,
    type: str = "order",
    kind: FailureKind = FailureKind.PERMANENT,
    text: str = "ValueError: no such user 7",
    error_type: ErrorType = ErrorType.UNKNOWN,
) -> None:
    await bury(
        broker,
        seal_all(messages(*ids, queue=queue, type=type)),
        kind=kind,
        error=error(text, type=error_type),
    )


async def letters_of(broker: Broker, queue: QueueName = Q) -> list[DeadLetter]:
    return await broker.dead_letters.page(queue, limit=1_000)


class SlowTime:
    """A clock whose `sleep` moves it, and tells what it was asked for."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        # A sleep never ends early; whole milliseconds as the clock counts them.
        self.clock.advance(timedelta(milliseconds=int(seconds * 1000) + 1))
