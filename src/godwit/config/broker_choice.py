"""Which broker is meant when several are named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlunsplit

from godwit.config.sources import FoundValue, Level
from godwit.core.errors import ConfigurationError
from godwit.core.settings import DEFAULT_BROKER_URL, RedisSettings
from godwit.core.urls import split_url

_RANK: Final = {"broker_url": 0, "redis.url": 1, "rabbitmq.url": 1, "redis.host": 2}
_REDIS_PARTS: Final = ("port", "password", "db")


def choose_broker_url(found: Mapping[str, FoundValue]) -> FoundValue:
    """Return the broker's address out of what the four keys say that can name one.

    Arguments win over the environment, which wins over the file. At one of these levels the order is broker_url
    (GODWIT_URL), then redis.url (REDIS_URL) or rabbitmq.url (RABBITMQ_URL), never both, then redis.host (REDIS_HOST).
    """
    named = sorted(
        ((given.level, _RANK[key], key) for key, given in found.items() if key in _RANK and given.value is not None)
    )
    if not named:
        return FoundValue(DEFAULT_BROKER_URL, Level.DEFAULT, "default")
    level, rank, key = named[0]
    rivals = [other for at, place, other in named if (at, place) == (level, rank)]
    if len(rivals) > 1:
        first, second = (found[rival].origin for rival in rivals)
        raise ConfigurationError(
            f"{first}, {second}",
            "two brokers are named",
            "Remove one of them, or decide with GODWIT_URL.",
        )
    winner = found[key]
    if key not in {"redis.url", "redis.host"}:
        return winner
    return FoundValue(_redis_url(key, found), winner.level, winner.origin)


def _redis_url(key: str, found: Mapping[str, FoundValue]) -> str:
    given = {name: found[f"redis.{name}"].value if f"redis.{name}" in found else None for name in _REDIS_PARTS}
    url = (
        found[key].value
        if key == "redis.url"
        else redis_address(found[key].value, given["port"] or RedisSettings().port)
    )
    return with_account(url, password=given["password"], db=given["db"])


def with_account(url: str, *, password: str | None, db: int | None) -> str:
    """Return a Redis URL with the password and database it lacks."""
    parts = split_url(url)
    host = parts.netloc.rpartition("@")[2]
    account = parts.netloc[: -len(host)]
    if password is not None and parts.password is None:
        account = f"{parts.username or ''}:{quote(password, safe='')}@"
    names = [name for name in parts.path.split("/") if name]
    before = 1 if parts.scheme.endswith("+sentinel") else 0  # the master's name
    path = f"/{'/'.join([*names, str(db)])}" if db is not None and len(names) == before else parts.path
    return urlunsplit(parts._replace(netloc=f"{account}{host}", path=path))


def redis_address(host: str, port: int) -> str:
    """Return the URL of a Redis server; an IPv6 address gets its brackets."""
    return f"redis://[{host}]:{port}" if ":" in host else f"redis://{host}:{port}"
