"""Examines a Redis or Valkey server: what it would lose, how far it is from its limits, what nobody uses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, NoPermissionError, RedisError

from godwit.admin.doctor.findings import Finding, problem
from godwit.admin.doctor.journals import CHECK, examine_journals
from godwit.admin.doctor.redis import capacity, durability
from godwit.admin.doctor.redis.facts import gather
from godwit.admin.doctor.redis.groups import examine_groups
from godwit.brokers.redis import keys
from godwit.brokers.urls import connect
from godwit.config import without_password
from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.errors import BrokerUnavailable, GodwitError
from godwit.core.queues import QueueSpec

TIMEOUT_SECONDS: Final = 5.0


async def examine(url: str, *, span: timedelta, clock: Clock = SYSTEM_CLOCK) -> list[Finding]:
    """Look at the server a URL names."""
    async with _client(url) as client:
        specs, groups = await _specs(client), await examine_groups(client)
        facts, journals = await asyncio.gather(
            gather(client, span=span, clock=clock), _journals(url, specs, span), return_exceptions=True
        )
        if isinstance(facts, BaseException):
            raise facts
        if isinstance(journals, BaseException):
            raise journals
    return [*durability.judge(facts), *capacity.judge(facts), groups, *journals]


@asynccontextmanager
async def _client(url: str) -> AsyncIterator[Redis]:
    """Connect at once or not at all: a doctor who keeps trying says nothing for a minute."""
    try:
        client = Redis.from_url(
            url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS, retry=Retry(NoBackoff(), 0)
        )
    except ValueError as error:
        raise _unavailable(url, error, "Write it as redis://:password@host:6379/0.") from error
    try:
        async with client:
            yield client
    except AuthenticationError as error:
        raise _unavailable(url, error, "Check the user and password (REDIS_PASSWORD).") from error
    except NoPermissionError as error:
        raise _unavailable(url, error, "Give the account +@all, or at least +info +config|get +scan +xinfo.") from error
    except BusyLoadingError as error:
        raise _unavailable(url, error, "The server is loading its data; look again when it is done.") from error
    except (RedisError, OSError) as error:
        raise _unavailable(
            url, error, "Check that the server runs, its address and port, and rediss:// for TLS."
        ) from error


def _unavailable(url: str, error: Exception, remedy: str) -> BrokerUnavailable:
    return BrokerUnavailable(without_password(url), str(error) or type(error).__name__, remedy)


async def _specs(client: Redis) -> dict[str, QueueSpec]:
    """Return the queues as declared."""
    found: dict[str, QueueSpec] = {}
    if await client.type(keys.QUEUES) != b"zset":
        return found
    names: Any = await client.zrange(keys.QUEUES, 0, -1)
    for name in [name.decode() for name in names]:
        spec = await client.hget(keys.part(name, "meta"), "spec")
        if spec is not None:
            found[name] = msgspec.json.decode(spec, type=QueueSpec)
    return found


async def _journals(url: str, specs: Mapping[str, QueueSpec], span: timedelta) -> list[Finding]:
    """Say how long the journals hold; a server that the broker refuses has been explained above."""
    try:
        async with connect(url) as broker:
            return await examine_journals(broker.journal, specs, span=span)
    except GodwitError as error:
        return [problem(CHECK, f"cannot be examined: {error.fact}", "The broker refuses this server.", error.remedy)]
