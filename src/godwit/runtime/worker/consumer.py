"""Consumers: which function handles which messages, and under which rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Final, Protocol

from godwit.brokers.arguments import MAX_PULL
from godwit.brokers.contract import Delivery
from godwit.core.errors import InvalidSetting, MessageNotHeld
from godwit.core.failures.breaker import Breaker
from godwit.core.failures.judgement import Classifier
from godwit.core.failures.retry import RetryPolicy
from godwit.core.limits import as_count, as_duration, as_limit
from godwit.core.messages.message import Message
from godwit.core.messages.schemas import Check
from godwit.core.names import DEFAULT_GROUP, GroupName, MessageId, QueueName, group_name, queue_name
from godwit.core.queues import DEFAULT_MAX_CRASHES
from godwit.core.rate import Rate, as_rate
from godwit.core.settings import DEFAULTS, LoadBalancing
from godwit.runtime.handlers.signature import is_asynchronous
from godwit.runtime.worker.health_checks import HealthProbe

Handler = Callable[..., Any]
"""Takes a message (or, with `batch`, a list of them); a plain function runs in a thread."""

DEFAULT_RETRY: Final = RetryPolicy()
DEFAULT_HEALTH: Final = HealthProbe()


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A handler and the rules it runs under.

    `weights` shares the pulls among the queues; `strict` serves them in the order given instead. Messages that a
    queue's filter does not want are done without being handled; what the check of its type refuses can never be
    handled. A message that was near `last_chance` crashes is handled alone. `max_concurrency` is the cap of the whole
    group, which `load_balancing` shares out. `breaker` names the downstream that the handler needs; `rate` is how many
    messages may begin in a time, over all workers of the group.
    """

    handler: Handler
    queues: tuple[QueueName, ...]
    group: GroupName = DEFAULT_GROUP
    concurrency: int = DEFAULTS.consumer.max_concurrency
    lease: timedelta = DEFAULTS.consumer.lease
    time_limit: timedelta = DEFAULTS.consumer.processing_timeout
    retry_policy: RetryPolicy | None = None
    retry_policies: Mapping[QueueName, RetryPolicy] = field(default_factory=dict)
    weights: tuple[int, ...] = ()
    strict: bool = False
    batch: int | None = None
    batch_timeout: timedelta = DEFAULTS.consumer.batch_timeout
    types: frozenset[str] | None = None
    classify: Classifier | None = None
    last_chance: int = DEFAULT_MAX_CRASHES - 1
    filters: Mapping[QueueName, Callable[[Message], bool]] = field(default_factory=dict)
    checks: Mapping[str, Check] = field(default_factory=dict)
    health: HealthProbe = DEFAULT_HEALTH
    load_balancing: LoadBalancing = LoadBalancing.LEAST_CONNECTIONS
    max_concurrency: int | None = None
    breaker: Breaker | None = None
    rate: Rate | None = None
    is_async: bool = field(init=False)

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        if not self.queues:
            raise InvalidSetting("queues", self.queues, "at least one queue")
        for queue in self.queues:
            queue_name(queue)
        group_name(self.group)
        object.__setattr__(self, "concurrency", as_count("concurrency", self.concurrency))
        for setting in ("lease", "time_limit", "batch_timeout"):
            object.__setattr__(self, setting, as_duration(setting, getattr(self, setting)))
        for setting in ("lease", "time_limit"):
            if getattr(self, setting) <= timedelta(0):
                raise InvalidSetting(setting, getattr(self, setting), "more than 0")
        if self.breaker is not None and not isinstance(self.breaker, Breaker):
            raise InvalidSetting("breaker", self.breaker, 'a Breaker, such as Breaker("smtp")')
        object.__setattr__(self, "batch", as_limit("batch", self.batch, most=MAX_PULL))
        if self.weights and (len(self.weights) != len(self.queues) or min(self.weights) < 1):
            raise InvalidSetting("weights", self.weights, "one number of 1 or more for each queue")
        object.__setattr__(self, "is_async", is_asynchronous(self.handler))

    def policy_for(self, queue: QueueName) -> RetryPolicy:
        """Return the retry policy for messages of a queue: the consumer's own, or the queue's."""
        return self.retry_policy or self.retry_policies.get(queue, DEFAULT_RETRY)

    @property
    def rate_name(self) -> str:
        """The name under which its rate is shared: the one given, or that of its group in its queues."""
        return (self.rate and self.rate.name) or f"{'+'.join(sorted(self.queues))}#{self.group}"

    @property
    def name(self) -> str:
        """What logs and statistics call it."""
        return f"{self.group}/{getattr(self.handler, '__qualname__', type(self.handler).__name__)}"


def duration_or(given: timedelta | float | None, default: timedelta, setting: str) -> timedelta:
    """Return a duration that was given, or the default."""
    return default if given is None else as_duration(setting, given)


class QueueConsumer:
    """The class form of a consumer: set `queues` and `group`, write `process_message`, register the instance.

    What is None comes from the configuration. Inside `process_message` the message may be settled by hand; what happens
    at the end of the handler then changes nothing.
    """

    queues: ClassVar[Sequence[str]] = ()
    group: ClassVar[str] = DEFAULT_GROUP
    concurrency: ClassVar[int | None] = None
    lease: ClassVar[timedelta | float | None] = None
    time_limit: ClassVar[timedelta | float | None] = None
    retry_policy: ClassVar[RetryPolicy | None] = None
    breaker: ClassVar[Breaker | None] = None
    rate: ClassVar[Rate | str | None] = None

    async def process_message(self, message: Message) -> Any:  # noqa: ARG002
        """Handle one message; returning means it is done, raising means it is not."""
        raise TypeError(f"{type(self).__name__} has no process_message(); write one that handles a message.")

    async def health_check(self) -> bool:
        """Say whether this consumer can do its work; asked every health check interval."""
        return True

    async def acknowledge_message(self, message_id: MessageId) -> None:
        """Settle the message being handled as done."""
        await current_delivery(message_id).acknowledge()

    async def reject_message(self, message_id: MessageId, reason: str, requeue: bool = True) -> None:  # noqa: FBT001, FBT002
        """Settle the message being handled as failed: tried again by the retry policy, or given up."""
        await current_delivery(message_id).reject(reason, requeue=requeue)

    def consumer(self) -> Consumer:
        """Return what a worker runs for this instance."""
        return Consumer(
            handler=self.process_message,
            queues=queues_of(self),
            group=GroupName(self.group),
            concurrency=DEFAULTS.consumer.max_concurrency if self.concurrency is None else self.concurrency,
            lease=duration_or(self.lease, DEFAULTS.consumer.lease, "lease"),
            time_limit=duration_or(self.time_limit, DEFAULTS.consumer.processing_timeout, "time_limit"),
            retry_policy=self.retry_policy,
            breaker=self.breaker,
            rate=as_rate(self.rate),
            health=HealthProbe(ask=self.health_check),
        )


def queues_of(consumer: QueueConsumer) -> tuple[QueueName, ...]:
    """Return the queues that a consumer of the class form names."""
    queues: object = consumer.queues
    if isinstance(queues, str):
        raise InvalidSetting(f"{type(consumer).__name__}.queues", queues, f"a list of names, such as [{queues!r}]")
    return tuple(consumer.queues)


class SettledByHand(Protocol):
    """The delivery a handler is working on, as the handler may settle it."""

    delivery: Delivery

    @property
    def message_id(self) -> MessageId:
        """The id its publisher knows it by."""
        ...

    async def acknowledge(self) -> None:
        """Settle it as done."""
        ...

    async def reject(self, reason: str, *, requeue: bool) -> None:
        """Settle it as failed."""
        ...


CURRENT: ContextVar[tuple[SettledByHand, ...]] = ContextVar("godwit_current_deliveries")
"""What the running handler was given."""


def current_delivery(message_id: MessageId) -> SettledByHand:
    """Return the delivery of this id that the running handler was given."""
    for delivery in CURRENT.get(()):
        if delivery.message_id == message_id:
            return delivery
    raise MessageNotHeld(message_id)
