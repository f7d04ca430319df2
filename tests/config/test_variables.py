from __future__ import annotations

from datetime import timedelta
from operator import attrgetter

import pytest

from godwit.config import describe, load
from godwit.config.keys import SETTINGS
from godwit.core.errors import ConfigurationError
from godwit.core.failures.retry import Strategy
from godwit.core.names import QueueName
from godwit.core.settings import Settings


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


# Each variable of the specifications: text, the field of the settings it reaches, the value there.
VARIABLES: dict[str, tuple[str, str, object]] = {
    "REDIS_HOST": ("cache", "broker_url", "redis://cache:6379"),
    "REDIS_PORT": ("6380", "redis.port", 6380),
    "REDIS_PASSWORD": ("hush", "redis.password", "hush"),
    "REDIS_DB": ("3", "redis.db", 3),
    "REDIS_MAX_CONNECTIONS": ("50", "redis.max_connections", 50),
    "QUEUE_DEFAULT_TTL": ("7200", "defaults.ttl", seconds(7200)),
    "QUEUE_MAX_RETRIES": ("5", "defaults.retry_policy.max_attempts", 6),
    "QUEUE_BATCH_SIZE": ("25", "consumer.batch_size", 25),
    "QUEUE_PROCESSING_TIMEOUT": ("20000", "consumer.processing_timeout", seconds(20)),
    "QUEUE_HEARTBEAT_INTERVAL": ("2500", "consumer.heartbeat_interval", seconds(2.5)),
    "CONSUMER_MAX_CONCURRENCY": ("40", "consumer.max_concurrency", 40),
    "CONSUMER_PROCESSING_TIMEOUT": ("45000", "consumer.processing_timeout", seconds(45)),
    "CONSUMER_HEARTBEAT_INTERVAL": ("1000", "consumer.heartbeat_interval", seconds(1)),
    "CONSUMER_HEALTH_CHECK_INTERVAL": ("20000", "consumer.health_check.interval", seconds(20)),
    "MONITORING_METRICS_INTERVAL": ("30000", "monitoring.metrics_interval", seconds(30)),
    "MONITORING_ALERT_THRESHOLDS": ('{"queue_depth": 500}', "monitoring.alert_thresholds.queue_depth", 500),
    "MONITORING_RETENTION_DAYS": ("7", "monitoring.retention", timedelta(days=7)),
    "SCHEDULER_PRECISION_MINUTES": ("5", "scheduler.precision", timedelta(minutes=5)),
    "SCHEDULER_MAX_FUTURE_DAYS": ("30", "scheduler.max_future", timedelta(days=30)),
    "SCHEDULER_CLEANUP_INTERVAL": ("60000", "scheduler.cleanup_interval", timedelta(minutes=1)),
    "APP_VERSION": ("1.4.2", "app_version", "1.4.2"),
    "RABBITMQ_URL": ("amqp://user:pass@localhost:5672", "broker_url", "amqp://user:pass@localhost:5672"),
    "RABBITMQ_QUEUE_NAME": ("birthday.messages.queue", "rabbitmq.queue_name", "birthday.messages.queue"),
    "RABBITMQ_DLQ_NAME": ("birthday.messages.dlq", "rabbitmq.dlq_name", "birthday.messages.dlq"),
    "RABBITMQ_EXCHANGE_NAME": ("birthday.messages", "rabbitmq.exchange_name", "birthday.messages"),
    "RABBITMQ_DLX_NAME": ("birthday.messages.dlx", "rabbitmq.dlx_name", "birthday.messages.dlx"),
    "QUEUE_CONCURRENCY": ("8", "rabbitmq.prefetch", 8),
    "QUEUE_RETRY_DELAY": ("2000", "defaults.retry_policy.initial_delay", seconds(2)),
    "QUEUE_RETRY_BACKOFF": ("linear", "defaults.retry_policy.strategy", Strategy.LINEAR),
    "CRON_MINUTE_SCHEDULE": ("*/5 8-17 * * MON-FRI", "scheduler.minute_schedule", "*/5 8-17 * * MON-FRI"),
    "REDIS_URL": ("redis:6379", "broker_url", "redis://redis:6379"),
    "REDIS_STREAM": ("measurements", "redis.stream", "measurements"),
    "REDIS_GROUP": ("savers", "redis.group", "savers"),
    "REDIS_CONSUMER_ID": ("collector-1", "redis.consumer_id", "collector-1"),
    "VISIBILITY_TIMEOUT": ("300000", "consumer.lease", timedelta(minutes=5)),
    "MAX_RETRIES": ("7", "defaults.retry_policy.max_attempts", 7),
}

REFUSED = {
    "REDIS_PORT": "70000",
    "REDIS_DB": "-1",
    "REDIS_MAX_CONNECTIONS": "0",
    "QUEUE_DEFAULT_TTL": "0",
    "QUEUE_MAX_RETRIES": "-1",
    "QUEUE_BATCH_SIZE": "ten",
    "QUEUE_PROCESSING_TIMEOUT": "30 parsecs",
    "QUEUE_HEARTBEAT_INTERVAL": "-5000",
    "CONSUMER_MAX_CONCURRENCY": "2.5",
    "CONSUMER_PROCESSING_TIMEOUT": "1e999",
    "CONSUMER_HEARTBEAT_INTERVAL": "nan",
    "CONSUMER_HEALTH_CHECK_INTERVAL": "true",
    "MONITORING_METRICS_INTERVAL": "9" * 5_000,
    "MONITORING_ALERT_THRESHOLDS": "[1000]",
    "MONITORING_RETENTION_DAYS": "999999999999",
    "SCHEDULER_PRECISION_MINUTES": "0",
    "SCHEDULER_MAX_FUTURE_DAYS": "soon",
    "SCHEDULER_CLEANUP_INTERVAL": "0x10",
    "RABBITMQ_URL": "http://localhost",
    "QUEUE_CONCURRENCY": "100000",
    "QUEUE_RETRY_DELAY": "-1",
    "QUEUE_RETRY_BACKOFF": "quadratic",
    "CRON_MINUTE_SCHEDULE": "every minute",
    "REDIS_URL": "amqp://localhost",
    "REDIS_STREAM": "a stream",
    "REDIS_GROUP": "{group}",
    "VISIBILITY_TIMEOUT": "0",
    "MAX_RETRIES": "0",
    "GODWIT_URL": "localhost",
    "GODWIT_STORE_URL": "/var/lib/state.db",
}


def test_all_36_variables_of_the_specifications_are_known() -> None:
    known = {variable.name for key in SETTINGS.values() for variable in key.variables}
    assert len(VARIABLES) == 36
    assert known - VARIABLES.keys() == {"GODWIT_URL", "GODWIT_STORE_URL"}
    assert VARIABLES.keys() - known == set()


@pytest.mark.parametrize(("name", "text", "field", "value"), [(name, *rest) for name, rest in VARIABLES.items()])
def test_each_variable_reaches_the_settings(name: str, text: str, field: str, value: object) -> None:
    at = attrgetter(field)
    assert at(Settings()) != value
    settings = load(environment={name: text})
    assert at(settings) == value
    assert f"env {name}" in {row.origin for row in describe(settings)}


@pytest.mark.parametrize(("name", "text"), REFUSED.items())
def test_a_bad_value_is_refused_by_name_with_what_is_allowed(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(environment={name: text})
    assert caught.value.where == f"environment {name}"
    assert caught.value.remedy
    assert repr(text)[:70] in caught.value.fact
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", VARIABLES)
def test_an_empty_variable_says_nothing(name: str) -> None:
    assert load(environment={name: " "}) == load(environment={})


@pytest.mark.parametrize(
    ("queue", "consumer", "value", "origin"),
    [
        ("1000", "2000", seconds(2), "CONSUMER_"),
        ("1000", "", seconds(1), "QUEUE_"),
        ("", "2000", seconds(2), "CONSUMER_"),
    ],
)
@pytest.mark.parametrize(
    ("key", "name"),
    [("consumer.processing_timeout", "PROCESSING_TIMEOUT"), ("consumer.heartbeat_interval", "HEARTBEAT_INTERVAL")],
)
def test_of_twins_the_consumers_wins(
    queue: str, consumer: str, value: timedelta, origin: str, key: str, name: str
) -> None:
    settings = load(environment={f"QUEUE_{name}": queue, f"CONSUMER_{name}": consumer})
    assert attrgetter(key)(settings) == value
    assert settings.origins[key] == f"env {origin}{name}"


def test_a_twin_that_loses_is_still_checked() -> None:
    with pytest.raises(ConfigurationError, match="QUEUE_PROCESSING_TIMEOUT"):
        load(environment={"QUEUE_PROCESSING_TIMEOUT": "soon", "CONSUMER_PROCESSING_TIMEOUT": "1000"})


def test_retries_and_failures_that_agree_are_fine() -> None:
    settings = load(environment={"QUEUE_MAX_RETRIES": "3", "MAX_RETRIES": "4"})
    assert settings.queue(QueueName("any")).retry_policy.max_attempts == 4


def test_retries_and_failures_that_contradict_each_other_are_refused_naming_both() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(environment={"QUEUE_MAX_RETRIES": "3", "MAX_RETRIES": "3"})
    assert caught.value.where == "environment QUEUE_MAX_RETRIES, MAX_RETRIES"
    assert "QUEUE_MAX_RETRIES=3 means 4 attempts, MAX_RETRIES=3 means 3" in caught.value.fact


def test_alert_thresholds_of_the_specification_keep_the_other_defaults() -> None:
    text = '{"queue_depth": 2000, "error_rate": 0.1, "processing_time": "1s", "poison_messages": 3}'
    thresholds = load(environment={"MONITORING_ALERT_THRESHOLDS": text}).monitoring.alert_thresholds
    assert thresholds.queue_depth == 2000
    assert thresholds.error_rate == 0.1
    assert thresholds.retry_rate == 0.3
    assert thresholds.processing_time == seconds(1)
    assert thresholds.poison_messages == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"queue_dept": 5}', "there is no key 'queue_dept'. Did you mean queue_depth?"),
        ('{"error_rate": 5}', "error_rate of MONITORING_ALERT_THRESHOLDS"),
        ('{"queue_depth": true}', "queue_depth of MONITORING_ALERT_THRESHOLDS"),
        ('{"error_rate": NaN}', "JSON object"),
        ("queue_depth=5", "JSON object"),
    ],
)
def test_bad_alert_thresholds_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(environment={"MONITORING_ALERT_THRESHOLDS": text})
    assert problem in str(caught.value)


@pytest.mark.parametrize("text", ["300000", "300000.0", "300s", "5m", "5 m"])
def test_a_variable_takes_its_own_unit_or_text_with_one(text: str) -> None:
    assert load(environment={"VISIBILITY_TIMEOUT": text}).consumer.lease == timedelta(minutes=5)


def test_queue_variables_reach_queues_that_nobody_configured() -> None:
    environment = {"QUEUE_DEFAULT_TTL": "60", "QUEUE_MAX_RETRIES": "5", "QUEUE_RETRY_DELAY": "2000"}
    queue = load(environment=environment).queue(QueueName("orders"))
    assert queue.spec.ttl == timedelta(minutes=1)
    delays = [queue.retry_policy.delay(attempt=attempt) for attempt in range(1, 7)]
    assert delays == [*map(seconds, (2, 4, 8, 16, 32)), None]


def test_a_first_delay_above_the_types_longest_raises_the_longest() -> None:
    policy = load(environment={"QUEUE_RETRY_DELAY": "600000"}).queue(QueueName("orders")).retry_policy
    assert policy.delay(attempt=1) == policy.delay(attempt=2) == timedelta(minutes=10)
