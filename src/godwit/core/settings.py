"""The runtime's settings: plain values, already checked. `godwit.config` reads them from files and the environment.

Every duration is a `timedelta`. A queue without configuration gets the defaults of its type (`TYPE_DEFAULTS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from godwit.core.failures.breaker import BreakerRule
from godwit.core.failures.retry import RetryPolicy, Strategy
from godwit.core.names import DEFAULT_GROUP, GroupName, QueueName
from godwit.core.queues import GroupSpec, QueueSpec, QueueType
from godwit.core.rate import Rate

DEFAULT_BROKER_URL: Final = "sqlite:///godwit.db"
_TELEMETRY_STREAM: Final = QueueName("telemetry-stream")
_COLLECTORS: Final = GroupName("collectors")


class LoadBalancing(StrEnum):
    """How the members of a group share its work."""

    ROUND_ROBIN = "round_robin"
    LEAST_CONNECTIONS = "least_connections"
    WEIGHTED = "weighted"


class QueueOrder(StrEnum):
    """How a worker of several queues chooses between them."""

    WEIGHTED = "weighted"
    STRICT = "strict"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeDefaults:
    """What a queue's type stands for, where the queue itself says nothing."""

    priority: int
    ttl: timedelta | None
    max_size: int | None
    retry_policy: RetryPolicy


_STANDARD_RETRY: Final = RetryPolicy(initial_delay=timedelta(seconds=5))
_DAY: Final = timedelta(days=1)

TYPE_DEFAULTS: Final[dict[QueueType, TypeDefaults]] = {
    QueueType.PRIORITY: TypeDefaults(
        priority=100,
        ttl=timedelta(hours=1),
        max_size=10_000,
        retry_policy=RetryPolicy(max_attempts=5, max_delay=timedelta(seconds=30)),
    ),
    QueueType.STANDARD: TypeDefaults(priority=50, ttl=_DAY, max_size=None, retry_policy=_STANDARD_RETRY),
    QueueType.BULK: TypeDefaults(priority=10, ttl=7 * _DAY, max_size=100_000, retry_policy=_STANDARD_RETRY),
    QueueType.SCHEDULED: TypeDefaults(priority=50, ttl=_DAY, max_size=None, retry_policy=_STANDARD_RETRY),
    QueueType.DEAD_LETTER: TypeDefaults(priority=0, ttl=None, max_size=None, retry_policy=_STANDARD_RETRY),
}
"""The only place where a queue's type has an effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryChanges:
    """A retry policy as far as it is configured; None leaves a field as it is."""

    max_attempts: int | None = None
    strategy: Strategy | None = None
    initial_delay: timedelta | None = None
    max_delay: timedelta | None = None
    multiplier: float | None = None
    jitter: float | None = None
    by_kind: dict[str, Strategy] | None = None
    max_postponements: int | None = None
    postponement_deadline: timedelta | None = None

    def applied_to(self, policy: RetryPolicy) -> RetryPolicy:
        """Return `policy` with the stated fields; a first delay above an unstated maximum raises the maximum."""
        stated = {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}
        if self.initial_delay is not None and self.max_delay is None:
            stated["max_delay"] = max(self.initial_delay, policy.max_delay)
        return msgspec.structs.replace(policy, **stated)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDefaults:
    """What holds for every queue that does not say otherwise; what is not stated here is left to the queue's type."""

    ttl: timedelta | UnsetType | None = UNSET
    retry_policy: RetryChanges = RetryChanges()

    def ttl_of(self, type: QueueType) -> timedelta | None:
        """Return the time to live of a queue of this type."""
        return TYPE_DEFAULTS[type].ttl if isinstance(self.ttl, UnsetType) else self.ttl

    def retry_policy_of(self, type: QueueType) -> RetryPolicy:
        """Return the retry policy of a queue of this type."""
        return self.retry_policy.applied_to(TYPE_DEFAULTS[type].retry_policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """How often the members of a group are looked at, how long an answer may take, and whom they ask.

    `callable` is `module:function`; a consumer may be given the function itself.
    """

    interval: timedelta = timedelta(seconds=10)
    timeout: timedelta = timedelta(seconds=5)
    callable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerDefaults:
    """How consumers work where their group does not say otherwise.

    `max_concurrency` is what one process runs at once; the cap over all workers of a group is in its `GroupSpec`.
    """

    max_concurrency: int = 10
    processing_timeout: timedelta = timedelta(seconds=30)
    heartbeat_interval: timedelta = timedelta(seconds=5)
    health_check: HealthCheck = HealthCheck()
    lease: timedelta = timedelta(seconds=15)
    batch_size: int = 10
    batch_timeout: timedelta = timedelta(seconds=5)
    queue_order: QueueOrder = QueueOrder.WEIGHTED
    shutdown_grace: timedelta = timedelta(seconds=20)


_CONSUMER: Final = ConsumerDefaults()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfiguration:
    """A group of a queue: what the broker declares (`spec`) and how its workers go about it.

    `retry_policy` None means the queue's; `filter` is a CEL condition on the messages this group wants.
    """

    spec: GroupSpec
    lease: timedelta = _CONSUMER.lease
    processing_timeout: timedelta = _CONSUMER.processing_timeout
    batch_size: int = _CONSUMER.batch_size
    batch_timeout: timedelta = _CONSUMER.batch_timeout
    load_balancing: LoadBalancing = LoadBalancing.LEAST_CONNECTIONS
    health_check: HealthCheck = _CONSUMER.health_check
    retry_policy: RetryPolicy | None = None
    rate: Rate | None = None
    filter: str | None = None

    @property
    def name(self) -> GroupName:
        """The group's name."""
        return self.spec.name

    @property
    def max_concurrency(self) -> int | None:
        """How many messages of this group may be leased at once, over all its workers."""
        return self.spec.flow_control.max_messages


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRule:
    """Messages that meet a CEL condition go to `target`."""

    condition: str
    target: QueueName


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfiguration:
    """A queue with its groups, its retry policy and the rules that lead messages to it.

    Without groups it is only a name under which other queues' dead letters are found: it is not declared at a broker,
    because dead letters are fed to any queue that has groups.
    """

    spec: QueueSpec
    retry_policy: RetryPolicy
    groups: tuple[GroupConfiguration, ...]
    rules: tuple[RoutingRule, ...] = ()

    @property
    def name(self) -> QueueName:
        """The queue's name."""
        return self.spec.name

    def retry_policy_for(self, group: GroupName) -> RetryPolicy:
        """Return the policy that holds in a group: its own, or the queue's."""
        own = next((known.retry_policy for known in self.groups if known.name == group), None)
        return self.retry_policy if own is None else own


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertThresholds:
    """Beyond these an alert is raised; rates are shares of 1, all but the depth is over the alert window."""

    queue_depth: int = 1_000
    error_rate: float = 0.05
    retry_rate: float = 0.3
    processing_time: timedelta = timedelta(seconds=30)
    poison_messages: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthThresholds:
    """Beyond these the health status is unhealthy."""

    queue_depth: int = 1_000
    retry_rate: float = 0.5
    processing_time: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringSettings:
    """What is measured, how often, and when an alert is sent."""

    metrics_interval: timedelta = timedelta(minutes=1)
    alert_thresholds: AlertThresholds = AlertThresholds()
    alert_window: timedelta = timedelta(minutes=5)
    alert_webhook: str | None = field(default=None, repr=False)  # such addresses carry a token
    health_thresholds: HealthThresholds = HealthThresholds()
    retention: timedelta = timedelta(days=30)
    http_host: str = "127.0.0.1"
    http_port: int | None = None
    tracing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """How the scheduler ticks and what it forgets; delivery itself is exact.

    What is due within `look_ahead` is with the broker, what is due later in the store.
    """

    look_ahead: timedelta = timedelta(hours=1)
    precision: timedelta = timedelta(minutes=1)
    max_future: timedelta = timedelta(days=365)
    cleanup_interval: timedelta = timedelta(hours=1)
    minute_schedule: str = "* * * * *"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSettings:
    """What the Redis broker needs; `stream` and `group` name where plain XADDs arrive.

    `Settings.broker_url` is the address to use: `url` and `host` are here only to be shown.
    """

    url: str | None = field(default=None, repr=False)
    host: str = "localhost"
    port: int = 6379
    password: str | None = field(default=None, repr=False)
    db: int = 0
    max_connections: int = 100
    stream: QueueName = _TELEMETRY_STREAM
    group: GroupName = _COLLECTORS
    consumer_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitMQSettings:
    """Names of the default queue's parts in RabbitMQ (None: derived from its name), and the prefetch.

    `Settings.broker_url` is the address to use: `url` is here only to be shown.
    """

    url: str | None = field(default=None, repr=False)
    queue_name: str | None = None
    dlq_name: str | None = None
    exchange_name: str | None = None
    dlx_name: str | None = None
    prefetch: int = 5


_BREAKER: Final = BreakerRule()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be configured, with where each value came from (`origins`, by the name of its key)."""

    broker_url: str = field(default=DEFAULT_BROKER_URL, repr=False)  # may hold a password
    store_url: str | None = field(default=DEFAULT_BROKER_URL, repr=False)
    app_version: str | None = None
    default_queue: QueueName | None = None
    defaults: QueueDefaults = QueueDefaults()
    queues: tuple[QueueConfiguration, ...] = ()
    consumer: ConsumerDefaults = ConsumerDefaults()
    monitoring: MonitoringSettings = MonitoringSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    redis: RedisSettings = RedisSettings()
    rabbitmq: RabbitMQSettings = RabbitMQSettings()
    breaker: BreakerRule = _BREAKER
    origins: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def queue(self, name: QueueName, *, type: QueueType = QueueType.STANDARD) -> QueueConfiguration:
        """Return the configuration of a queue; one that is not configured has its type's defaults and group `default`.

        A dead letter queue that is not configured has no group.
        """
        for known in self.queues:
            if known.name == name:
                return known
        kind = TYPE_DEFAULTS[type]
        return QueueConfiguration(
            spec=QueueSpec(
                name=name, type=type, priority=kind.priority, max_size=kind.max_size, ttl=self.defaults.ttl_of(type)
            ),
            retry_policy=self.defaults.retry_policy_of(type),
            groups=() if type is QueueType.DEAD_LETTER else (self.group(DEFAULT_GROUP),),
        )

    def group(self, name: GroupName) -> GroupConfiguration:
        """Return a group that is not configured: it works as `consumer` says."""
        return GroupConfiguration(
            spec=GroupSpec(name=name),
            lease=self.consumer.lease,
            processing_timeout=self.consumer.processing_timeout,
            batch_size=self.consumer.batch_size,
            batch_timeout=self.consumer.batch_timeout,
            health_check=self.consumer.health_check,
        )


DEFAULTS: Final = Settings()
"""What holds where nothing is configured: the only place that constructors take their defaults from."""
