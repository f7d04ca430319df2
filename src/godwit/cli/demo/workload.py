"""The demo's workload: its queues, its messages, and how often handling one of them fails."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Any, Final, NamedTuple

from godwit.core.clock import utc_now
from godwit.core.failures.judgement import Permanent
from godwit.core.failures.retry import RetryPolicy
from godwit.core.messages.message import Message, Scheduling
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import GroupSpec, QueueSpec

LEASE: Final = timedelta(seconds=3)
"""Short, so that the messages of a killed worker come back during the demo."""
RETRIES: Final = RetryPolicy(max_attempts=4, initial_delay=timedelta(milliseconds=300), jitter=0.2)
WORK_SECONDS: Final = 0.08
AT_ONCE: Final = 10
PUBLISHERS: Final = 2
KEYS: Final = 30
PRIORITIES: Final = {10: 0.3, 50: 0.4, 75: 0.2, 95: 0.1}
DUE_LATER: Final = timedelta(seconds=2)
NEVER: Final = 1_000


class QueueGroup(NamedTuple):
    """A queue and one of its groups."""

    queue: QueueName
    group: GroupName


ORDERS, EMAILS, EVENTS = QueueName("orders"), QueueName("emails"), QueueName("events")
QUEUES: Final[dict[QueueName, tuple[GroupSpec, ...]]] = {
    ORDERS: (GroupSpec(name=GroupName("billing")),),
    EMAILS: (GroupSpec(name=GroupName("mailer")),),
    EVENTS: (
        GroupSpec(name=GroupName("stock"), message_ordering=True),
        GroupSpec(name=GroupName("search"), message_ordering=True),
    ),
}
GROUPS: Final = tuple(QueueGroup(queue, group.name) for queue, groups in QUEUES.items() for group in groups)
SPECS: Final = tuple(QueueSpec(name=queue) for queue in QUEUES)


def messages(count: int, *, publisher: int, seed: int) -> Iterator[Message]:
    """Yield one publisher's messages. An ordering key belongs to one publisher, so that its order is known."""
    random = Random(f"{seed}:{publisher}")
    turns = dict[str, int]()
    for _ in range(count):
        (queue,) = random.choices((ORDERS, EMAILS, EVENTS), (0.4, 0.3, 0.3))
        if queue == ORDERS:
            (priority,) = random.choices(list(PRIORITIES), list(PRIORITIES.values()))
            yield Message(queue=queue, type="order.created", priority=priority, payload=_content(random, 0.01, 0.0))
        elif queue == EMAILS:
            due = Scheduling(deliver_at=utc_now() + DUE_LATER) if random.random() < 0.1 else None  # noqa: PLR2004 # one in ten
            kind = "email.reminder" if due else "email.receipt"
            yield Message(queue=queue, type=kind, payload=_content(random, 0.15, 0.02), scheduling=due)
        else:
            key = f"cart-{publisher}{random.randrange(KEYS // PUBLISHERS):02}"
            turn = turns[key] = turns.get(key, 0) + 1
            content = {**_content(random, 0.02, 0.0), "turn": turn}
            yield Message(queue=queue, type="cart.changed", ordering_key=key, payload=content)


def _content(random: Random, flaky: float, broken: float) -> dict[str, Any]:
    """Return a payload with the number of failures of its handling; `flaky` is the share that fails at first."""
    fails = 0
    if random.random() < flaky:
        fails = random.choice((1, 1, 1, 2, 2, NEVER))
    return {"customer": random.randrange(10_000), "fails": fails, "broken": random.random() < broken}


def handle(message: Message, failures: int) -> None:
    """Handle a message as its payload says: fail for good, fail a number of times, or succeed."""
    if message.payload["broken"]:
        raise Permanent("there is no such address")
    if failures < message.payload["fails"]:
        raise ConnectionError("the server did not answer")


def doomed(message: Message) -> bool:
    """Say whether a message must end as a dead letter."""
    return bool(message.payload["broken"] or message.payload["fails"] >= RETRIES.max_attempts)
