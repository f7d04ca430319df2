from __future__ import annotations

import pytest

from godwit.config import describe, load, without_password
from godwit.config.keys import GROUP_KEYS, QUEUE_KEYS, SETTINGS
from godwit.config.loader import settings_from
from godwit.config.sources import Document
from godwit.core.errors import ConfigurationError

SECRET = "hunter2"


def test_every_key_is_described_with_its_value_and_origin() -> None:
    rows = {row.name: row for row in describe(load(environment={"CONSUMER_PROCESSING_TIMEOUT": "45s"}))}
    assert list(rows) == list(SETTINGS)
    assert rows["consumer.processing_timeout"] == (
        "consumer.processing_timeout",
        "45s",
        "env CONSUMER_PROCESSING_TIMEOUT",
    )
    assert rows["consumer.batch_size"][1:] == ("10", "default")
    assert rows["defaults.ttl"][1:] == ("by type", "default")
    assert rows["monitoring.tracing"].value == "false"
    assert rows["scheduler.precision_minutes"].value == "1m"


def test_queues_groups_and_rules_are_described() -> None:
    text = """\
[[queues]]
name = "a"
consumer_groups = [{ name = "g", retry_policy.max_attempts = 2 }, "h"]
routing.rules = [{ condition = "priority > 80", target = "a" }]
"""
    rows = {row.name: row for row in describe(settings_from(Document(text, "godwit.toml"), {}, {}))}
    assert rows["queues[a].ttl"][1:] == ("1d", "type standard")
    assert rows["queues[a].routing.rules[1]"][1:] == ("priority > 80 -> a", "godwit.toml:4")
    assert rows["queues[a].consumer_groups[g].retry_policy.max_attempts"][1:] == ("2", "godwit.toml:3")
    assert "queues[a].consumer_groups[h].retry_policy.max_attempts" not in rows
    assert {f"queues[a].{key}" for key in QUEUE_KEYS} <= rows.keys()
    assert {f"queues[a].consumer_groups[g].{key}" for key in GROUP_KEYS} <= rows.keys()


@pytest.mark.parametrize(
    "environment",
    [
        {"REDIS_HOST": "h", "REDIS_PASSWORD": SECRET},
        {"REDIS_URL": f"rediss://me:{SECRET}@h"},
        {"REDIS_URL": f"redis://h?password={SECRET}"},
        {"RABBITMQ_URL": f"amqp://me:{SECRET}@h"},
        {"GODWIT_URL": f"redis://:{SECRET}@h", "GODWIT_STORE_URL": f"postgresql://me:{SECRET}@b@h/db"},
    ],
)
def test_a_secret_is_never_shown(environment: dict[str, str]) -> None:
    settings = load(environment=environment)
    assert SECRET in settings.broker_url + str(settings.store_url)
    assert SECRET not in repr(describe(settings))
    assert SECRET not in repr(settings)
    assert "***" in repr(describe(settings))


def test_the_address_of_the_webhook_is_not_shown() -> None:
    settings = load(environment={}, arguments={"monitoring.alert_webhook": f"https://hooks.example/{SECRET}"})
    assert SECRET in str(settings.monitoring.alert_webhook)
    assert SECRET not in repr(settings) + repr(describe(settings))


@pytest.mark.parametrize(
    ("environment", "arguments"),
    [
        ({"REDIS_URL": f"http://me:{SECRET}@h"}, {}),
        ({"REDIS_URL": f"redis://me:{SECRET}@h:port"}, {}),
        ({"GODWIT_URL": f"me:{SECRET}@h"}, {}),
        ({"RABBITMQ_URL": f"amqp:/me:{SECRET}@h"}, {}),
        ({"REDIS_PASSWORD": f"\0{SECRET}"}, {}),
        ({}, {"redis.password": [SECRET]}),
        ({}, {"monitoring.alert_webhook": f"hooks.example/{SECRET}"}),
        ({"REDIS_URL": f"redis://:{SECRET}@a", "RABBITMQ_URL": f"amqp://:{SECRET}@b"}, {}),
    ],
)
def test_an_error_does_not_show_a_secret(environment: dict[str, str], arguments: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(environment=environment, arguments=arguments)
    assert SECRET not in str(caught.value) + repr(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///godwit.db", "sqlite:///godwit.db"),
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("redis://me@h", "redis://me@h"),
        ("redis://:p@h", "redis://:***@h"),
        ("postgresql://me:p@w/o:rd@h/db?sslmode=require", "postgresql://me:***@h/db?sslmode=require"),
        ("redis://h?password=p&db=1", "redis://h?password=***&db=1"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown
