"""Everything that godwit.toml and the environment can say, one line per key; `docs/configuration.md` explains them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from godwit.config.addresses import Url
from godwit.config.values import (
    AttemptLimit,
    AttributeNames,
    Choice,
    Count,
    Duration,
    Flag,
    Number,
    OrNone,
    RateText,
    Reader,
    Retries,
    StrategyByKind,
    Text,
    check_cron,
)
from godwit.core.failures.retry import Strategy
from godwit.core.messages.message import MAX_PRIORITY
from godwit.core.names import group_name, queue_name
from godwit.core.queues import MAX_PARTITIONS, JournalBody, Lane, Overflow, QueueType
from godwit.core.settings import LoadBalancing, QueueOrder


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable; `member` is the part of its JSON object that is meant."""

    name: str
    reader: Reader | None = None
    member: str | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """A key of godwit.toml, the variables that override it (the first wins), and the field of the settings it fills."""

    name: str
    reader: Reader
    variables: tuple[Variable, ...] = ()
    field: str = ""
    must_agree: bool = False

    @property
    def path(self) -> tuple[str, ...]:
        """The names of the fields that lead to the value, from the settings (or the queue, or the group) on."""
        return tuple((self.field or self.name).split("."))

    @property
    def unit(self) -> str:
        """What a bare number counts in the variables, or in the file where the key's name says it."""
        return self.reader.unit if self.variables else ""


def variables(*names: str) -> tuple[Variable, ...]:
    """Return variables that are read like the key itself."""
    return tuple(Variable(name) for name in names)


def by_name(keys: Iterable[Key]) -> Mapping[str, Key]:
    """Return keys as a table."""
    return {key.name: key for key in keys}


COUNT: Final = Count()
DURATION: Final = Duration()
DURATION_OR_ZERO: Final = Duration(least=timedelta(0))
TTL: Final = Duration(unit="s")
SHARE: Final = Number(most=1)
PORT: Final = Count(most=65_535)
REDIS_SCHEMES: Final = ("redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel")
TEXT: Final = Text()
QUEUE: Final = Text(allowed="the name of a queue: letters, digits and . _ : @ / + -", check=queue_name)
GROUP: Final = Text(allowed="the name of a group: letters, digits and . _ : @ / + -", check=group_name)
CRON: Final = Text(allowed='five cron fields such as "* * * * *"', check=check_cron)
ALERTS: Final = "MONITORING_ALERT_THRESHOLDS"

RETRY_KEYS: Final = (
    Key("retry_policy.max_attempts", AttemptLimit()),
    Key("retry_policy.backoff_strategy", Choice(Strategy), field="retry_policy.strategy"),
    Key("retry_policy.initial_delay", DURATION_OR_ZERO),
    Key("retry_policy.max_delay", DURATION_OR_ZERO),
    Key("retry_policy.multiplier", Number(least=1)),
    Key("retry_policy.jitter", SHARE),
    Key("retry_policy.by_kind", StrategyByKind()),
    Key("retry_policy.max_postponements", Count(least=0)),
    Key("retry_policy.postponement_deadline", DURATION_OR_ZERO),
)

_RETRY_VARIABLES: Final = {
    "max_attempts": (Variable("QUEUE_MAX_RETRIES", Retries()), Variable("MAX_RETRIES")),
    "backoff_strategy": variables("QUEUE_RETRY_BACKOFF"),
    "initial_delay": variables("QUEUE_RETRY_DELAY"),
}

SETTINGS: Final = by_name(
    (
        Key("broker_url", Url(), variables("GODWIT_URL")),
        Key("store_url", OrNone(Url()), variables("GODWIT_STORE_URL")),
        Key("app_version", OrNone(TEXT), variables("APP_VERSION")),
        Key("default_queue", OrNone(QUEUE)),
        Key("defaults.ttl", OrNone(TTL), variables("QUEUE_DEFAULT_TTL")),
        *(
            Key(
                f"defaults.{key.name}",
                key.reader,
                _RETRY_VARIABLES.get(key.name.rpartition(".")[2], ()),
                f"defaults.{'.'.join(key.path)}",
                must_agree=True,
            )
            for key in RETRY_KEYS
        ),
        Key("consumer.max_concurrency", COUNT, variables("CONSUMER_MAX_CONCURRENCY")),
        Key(
            "consumer.processing_timeout",
            DURATION,
            variables("CONSUMER_PROCESSING_TIMEOUT", "QUEUE_PROCESSING_TIMEOUT"),
        ),
        Key(
            "consumer.heartbeat_interval",
            DURATION,
            variables("CONSUMER_HEARTBEAT_INTERVAL", "QUEUE_HEARTBEAT_INTERVAL"),
        ),
        Key("consumer.health_check.interval", DURATION, variables("CONSUMER_HEALTH_CHECK_INTERVAL")),
        Key("consumer.health_check.timeout", DURATION),
        Key("consumer.lease", DURATION, variables("VISIBILITY_TIMEOUT")),
        Key("consumer.batch_size", COUNT, variables("QUEUE_BATCH_SIZE")),
        Key("consumer.batch_timeout", DURATION_OR_ZERO),
        Key("consumer.queue_order", Choice(QueueOrder)),
        Key("consumer.shutdown_grace", DURATION_OR_ZERO),
        Key("monitoring.metrics_interval", DURATION, variables("MONITORING_METRICS_INTERVAL")),
        *(
            Key(f"monitoring.alert_thresholds.{name}", reader, (Variable(ALERTS, member=name),))
            for name, reader in (
                ("queue_depth", COUNT),
                ("error_rate", SHARE),
                ("retry_rate", SHARE),
                ("processing_time", DURATION),
                ("poison_messages", Count(least=0)),
            )
        ),
        Key("monitoring.alert_window", DURATION),
        Key("monitoring.alert_webhook", OrNone(Url(schemes=("https", "http"), whole=False))),
        Key("monitoring.health_thresholds.queue_depth", COUNT),
        Key("monitoring.health_thresholds.retry_rate", SHARE),
        Key("monitoring.health_thresholds.processing_time", DURATION),
        Key(
            "monitoring.retention_days",
            Duration(unit="d", bare="d"),
            variables("MONITORING_RETENTION_DAYS"),
            "monitoring.retention",
        ),
        Key("monitoring.http_host", TEXT),
        Key("monitoring.http_port", OrNone(PORT)),
        Key("monitoring.tracing", Flag()),
        Key(
            "scheduler.precision_minutes",
            Duration(unit="m", bare="m"),
            variables("SCHEDULER_PRECISION_MINUTES"),
            "scheduler.precision",
        ),
        Key(
            "scheduler.max_future_days",
            Duration(unit="d", bare="d"),
            variables("SCHEDULER_MAX_FUTURE_DAYS"),
            "scheduler.max_future",
        ),
        Key("scheduler.look_ahead", DURATION),
        Key("scheduler.cleanup_interval", DURATION, variables("SCHEDULER_CLEANUP_INTERVAL")),
        Key("scheduler.minute_schedule", CRON, variables("CRON_MINUTE_SCHEDULE")),
        Key("redis.url", OrNone(Url(schemes=REDIS_SCHEMES, bare="redis")), variables("REDIS_URL")),
        Key("redis.host", TEXT, variables("REDIS_HOST")),
        Key("redis.port", PORT, variables("REDIS_PORT")),
        Key("redis.password", OrNone(Text(secret=True)), variables("REDIS_PASSWORD")),
        Key("redis.db", Count(least=0), variables("REDIS_DB")),
        Key("redis.max_connections", COUNT, variables("REDIS_MAX_CONNECTIONS")),
        Key("redis.stream", QUEUE, variables("REDIS_STREAM")),
        Key("redis.group", GROUP, variables("REDIS_GROUP")),
        Key("redis.consumer_id", OrNone(TEXT), variables("REDIS_CONSUMER_ID")),
        Key("rabbitmq.url", OrNone(Url(schemes=("amqp", "amqps"))), variables("RABBITMQ_URL")),
        Key("rabbitmq.queue_name", OrNone(TEXT), variables("RABBITMQ_QUEUE_NAME")),
        Key("rabbitmq.dlq_name", OrNone(TEXT), variables("RABBITMQ_DLQ_NAME")),
        Key("rabbitmq.exchange_name", OrNone(TEXT), variables("RABBITMQ_EXCHANGE_NAME")),
        Key("rabbitmq.dlx_name", OrNone(TEXT), variables("RABBITMQ_DLX_NAME")),
        Key("rabbitmq.prefetch", Count(most=65_535), variables("QUEUE_CONCURRENCY")),
        Key("breaker.failure_threshold", COUNT),
        Key("breaker.failure_rate", SHARE),
        Key("breaker.calls", COUNT),
        Key("breaker.window", DURATION),
        Key("breaker.reset_timeout", DURATION),
        Key("breaker.half_open_probes", COUNT),
    )
)

QUEUE_KEYS: Final = by_name(
    (
        Key("name", QUEUE, field="spec.name"),
        Key("type", Choice(QueueType), field="spec.type"),
        Key("priority", Count(least=0, most=MAX_PRIORITY), field="spec.priority"),
        Key("max_size", OrNone(COUNT), field="spec.max_size"),
        Key("max_bytes", OrNone(COUNT), field="spec.max_bytes"),
        Key("max_delayed", OrNone(COUNT), field="spec.max_delayed"),
        Key("ttl", OrNone(TTL), field="spec.ttl"),
        Key("dead_letter_queue", OrNone(QUEUE), field="spec.dead_letter_queue"),
        Key("dedup_window", DURATION_OR_ZERO, field="spec.dedup_window"),
        Key("lanes", Count(least=1, most=len(Lane)), field="spec.lanes"),
        Key("partitions", Count(most=MAX_PARTITIONS), field="spec.partitions"),
        Key("min_replicas", Count(least=0), field="spec.min_replicas"),
        Key("journal_body", Choice(JournalBody), field="spec.journal_body"),
        Key("journal_keep", DURATION, field="spec.journal_keep"),
        Key("journal_max_bytes", COUNT, field="spec.journal_max_bytes"),
        Key("journal_attributes", AttributeNames(), field="spec.journal_attributes"),
        *RETRY_KEYS,
    )
)

GROUP_KEYS: Final = by_name(
    (
        Key("name", GROUP, field="spec.name"),
        Key("max_concurrency", OrNone(COUNT), field="spec.flow_control.max_messages"),
        Key("max_leased_bytes", OrNone(COUNT), field="spec.flow_control.max_bytes"),
        Key("message_ordering", Flag(), field="spec.message_ordering"),
        Key("max_crashes", OrNone(COUNT), field="spec.max_crashes"),
        Key("max_delivery_attempts", OrNone(COUNT), field="spec.max_delivery_attempts"),
        Key("backoff.minimum", DURATION_OR_ZERO, field="spec.backoff.minimum"),
        Key("backoff.maximum", DURATION_OR_ZERO, field="spec.backoff.maximum"),
        Key("overflow", Choice(Overflow), field="spec.overflow"),
        Key("lease", DURATION),
        Key("processing_timeout", DURATION),
        Key("batch_size", COUNT),
        Key("batch_timeout", DURATION_OR_ZERO),
        Key("load_balancing", Choice(LoadBalancing)),
        Key("health_check.interval", DURATION),
        Key("health_check.timeout", DURATION),
        Key("health_check.callable", OrNone(TEXT)),
        Key("rate", OrNone(RateText())),
        Key("filter", OrNone(TEXT)),
        *RETRY_KEYS,
    )
)

RULE_KEYS: Final = by_name((Key("condition", TEXT), Key("target", QUEUE)))

QUEUE_PARTS: Final = ("consumer_groups", "routing.rules")
"""Lists inside a queue that have tables of their own."""

OTHER_WORDS: Final = {
    "groups": "consumer_groups",
    "max_concurrent": "max_concurrency",
    "max_retries": "max_attempts",
    "queue_limit": "max_size",
    "retry_attempts": "max_attempts",
    "retry_delay": "initial_delay",
    "rules": "routing.rules",
    "strategy": "backoff_strategy",
    "url": "broker_url",
    "visibility_timeout": "lease",
}
"""What the specifications and their readers call a key elsewhere."""
