"""Defaults are written down once, in `core/settings`; docs/configuration.md is compared in test_documentation.py."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from godwit.brokers.rabbitmq import broker as rabbitmq
from godwit.brokers.redis import RedisBroker
from godwit.brokers.urls import connect
from godwit.config.fields import field_of
from godwit.core.settings import DEFAULTS, AlertThresholds, Settings
from godwit.runtime.scheduler.scheduler import MessageScheduler
from godwit.runtime.worker.consumer import Consumer
from godwit.runtime.worker.health_checks import HealthProbe
from godwit.runtime.worker.worker import WorkerSettings
from godwit.telemetry.alerts import ALERT_OF_THRESHOLD, rules
from godwit.telemetry.health import QueueHealthMonitor
from godwit.telemetry.http import TelemetryServer
from godwit.telemetry.metrics import QueueMetricsCollector
from godwit.telemetry.monitor import QueueMonitor

GIVEN_ELSEWHERE: dict[tuple[Callable[..., Any], str], str] = {
    (WorkerSettings, "grace"): "consumer.shutdown_grace",
    (WorkerSettings, "heartbeat_interval"): "consumer.heartbeat_interval",
    (WorkerSettings, "breaker"): "breaker",
    (Consumer, "concurrency"): "consumer.max_concurrency",
    (Consumer, "lease"): "consumer.lease",
    (Consumer, "time_limit"): "consumer.processing_timeout",
    (Consumer, "batch_timeout"): "consumer.batch_timeout",
    (HealthProbe, "interval"): "consumer.health_check.interval",
    (HealthProbe, "timeout"): "consumer.health_check.timeout",
    (RedisBroker, "max_connections"): "redis.max_connections",
    (connect, "redis_connections"): "redis.max_connections",
    (MessageScheduler, "retention"): "monitoring.retention",
    (QueueMonitor, "settings"): "monitoring",
    (rules, "thresholds"): "monitoring.alert_thresholds",
    (QueueHealthMonitor, "limits"): "monitoring.health_thresholds",
    (QueueMetricsCollector, "window"): "monitoring.alert_window",
    (TelemetryServer, "host"): "monitoring.http_host",
}
"""What a caller may leave out, and the setting that it is without configuration."""


@pytest.mark.parametrize(("taken_by", "parameter"), GIVEN_ELSEWHERE, ids=lambda part: getattr(part, "__name__", part))
def test_what_a_constructor_takes_for_granted_is_the_setting(taken_by: Callable[..., Any], parameter: str) -> None:
    path = tuple(GIVEN_ELSEWHERE[taken_by, parameter].split("."))
    assert inspect.signature(taken_by).parameters[parameter].default == field_of(DEFAULTS, path)


def test_nothing_configured_is_the_defaults() -> None:
    assert Settings() == DEFAULTS


def test_a_rabbitmq_broker_without_a_prefetch_has_the_settings() -> None:
    assert rabbitmq.RabbitMQBroker("amqp://h.test")._prefetch == DEFAULTS.rabbitmq.prefetch


def test_every_threshold_has_its_alert() -> None:
    assert set(ALERT_OF_THRESHOLD) == {field.name for field in fields(AlertThresholds)}
