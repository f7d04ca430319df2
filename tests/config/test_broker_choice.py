from __future__ import annotations

from pathlib import Path

import pytest

from godwit.config import choose_broker_url, load
from godwit.config.sources import FoundValue, Level
from godwit.core.errors import ConfigurationError

REDIS, RABBITMQ = "redis://cache:6379", "amqp://rabbit"


def said(*, level: Level = Level.ENVIRONMENT, **urls: str) -> dict[str, FoundValue]:
    return {name.replace("__", "."): FoundValue(url, level, f"{level.name} {name}") for name, url in urls.items()}


def test_without_any_name_it_is_the_sqlite_file() -> None:
    assert choose_broker_url({}) == FoundValue("sqlite:///godwit.db", Level.DEFAULT, "default")


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({"GODWIT_URL": "memory://", "REDIS_URL": REDIS, "RABBITMQ_URL": RABBITMQ, "REDIS_HOST": "h"}, "memory://"),
        ({"REDIS_URL": REDIS, "REDIS_HOST": "h"}, REDIS),
        ({"RABBITMQ_URL": RABBITMQ, "REDIS_HOST": "h"}, RABBITMQ),
        ({"REDIS_HOST": "h"}, "redis://h:6379"),
        ({"REDIS_PORT": "1", "REDIS_DB": "2", "REDIS_PASSWORD": "p"}, "sqlite:///godwit.db"),
    ],
)
def test_the_environment_is_asked_in_order(environment: dict[str, str], url: str) -> None:
    assert load(environment=environment).broker_url == url


def test_an_argument_wins_over_everything() -> None:
    settings = load(environment={"GODWIT_URL": "memory://"}, arguments={"broker_url": "sqlite:///mine.db"})
    assert settings.broker_url == settings.store_url == "sqlite:///mine.db"
    assert settings.origins["broker_url"] == "argument"


def test_two_brokers_at_one_level_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two brokers are named") as caught:
        load(environment={"REDIS_URL": REDIS, "RABBITMQ_URL": RABBITMQ})
    assert "env REDIS_URL" in caught.value.where
    assert "env RABBITMQ_URL" in caught.value.where


def test_two_brokers_are_fine_when_something_before_them_decides() -> None:
    two = said(redis__url=REDIS, rabbitmq__url=RABBITMQ)
    above = said(level=Level.ARGUMENT, broker_url="memory://")
    assert choose_broker_url(two | above).value == "memory://"


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "godwit.toml"
    file.write_text('broker_url = "sqlite:///file.db"\n[rabbitmq]\nurl = "amqp://file"\n')
    assert load(file, environment={}).broker_url == "sqlite:///file.db"
    assert load(file, environment={"REDIS_HOST": "h"}).broker_url == "redis://h:6379"
    assert load(file, environment={"RABBITMQ_URL": RABBITMQ}).broker_url == RABBITMQ


def test_two_brokers_in_the_file_are_refused_with_both_lines(tmp_path: Path) -> None:
    file = tmp_path / "godwit.toml"
    file.write_text('[redis]\nurl = "redis://a"\n[rabbitmq]\nurl = "amqp://b"\n')
    with pytest.raises(ConfigurationError) as caught:
        load(file, environment={})
    assert f"{file}:2" in caught.value.where
    assert f"{file}:4" in caught.value.where


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        (
            {"REDIS_HOST": "h", "REDIS_PORT": "1", "REDIS_DB": "2", "REDIS_PASSWORD": "a@b/c:d"},
            "redis://:a%40b%2Fc%3Ad@h:1/2",
        ),
        ({"REDIS_HOST": "::1"}, "redis://[::1]:6379"),
        ({"REDIS_URL": "h:1", "REDIS_PASSWORD": "p", "REDIS_DB": "2"}, "redis://:p@h:1/2"),
        ({"REDIS_URL": "rediss://me:own@h/7", "REDIS_PASSWORD": "p", "REDIS_DB": "2"}, "rediss://me:own@h/7"),
        ({"REDIS_URL": "redis://me@h", "REDIS_PASSWORD": "p"}, "redis://me:p@h"),
        ({"REDIS_URL": "redis+cluster://a:1,b:2", "REDIS_PASSWORD": "p"}, "redis+cluster://:p@a:1,b:2"),
        (
            {"REDIS_URL": "redis+sentinel://a:1,b:2/m", "REDIS_PASSWORD": "p", "REDIS_DB": "2"},
            "redis+sentinel://:p@a:1,b:2/m/2",
        ),
        ({"REDIS_URL": "redis+sentinel://a:1/m/3", "REDIS_DB": "2"}, "redis+sentinel://a:1/m/3"),
    ],
)
def test_a_redis_address_is_completed_with_what_it_lacks(environment: dict[str, str], url: str) -> None:
    assert load(environment=environment).broker_url == url


@pytest.mark.parametrize(
    ("environment", "store"),
    [
        ({}, "sqlite:///godwit.db"),
        ({"GODWIT_URL": "sqlite:///other.db"}, "sqlite:///other.db"),
        ({"GODWIT_URL": "memory://"}, None),
        ({"REDIS_HOST": "h"}, None),
        ({"REDIS_HOST": "h", "GODWIT_STORE_URL": "postgresql://db/state"}, "postgresql://db/state"),
        ({"GODWIT_STORE_URL": "none"}, None),
    ],
)
def test_only_a_sqlite_broker_gives_its_file_to_the_store(environment: dict[str, str], store: str | None) -> None:
    assert load(environment=environment).store_url == store
