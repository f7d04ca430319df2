"""Examines Redis or Valkey servers: what they would lose, how far they are from their limits, what is unused.

Modules:

    facts        what can be seen of a Redis server, as plain values
    durability   whether it keeps what it confirmed: version, role, persistence, eviction
    capacity     how far it is from its limits: memory, file, connections, speed, clock
    topologies   whether several servers serve as one: slots, sentinels, lag, a slot with all the work
    queries      asks the nodes of a cluster, or sentinels, how they are
    counters     whether counters agreed with what is stored
    groups       groups and consumers that are no longer used
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import chain
from typing import Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, NoPermissionError, RedisError

from godwit.admin.doctor.findings import Finding, problem
from godwit.admin.doctor.journals import CHECK, examine_journals
from godwit.admin.doctor.redis import capacity, counters, durability, topologies
from godwit.admin.doctor.redis.facts import gather
from godwit.admin.doctor.redis.groups import examine_groups
from godwit.admin.doctor.redis.queries import ask_cluster, ask_sentinels, url_at
from godwit.brokers.redis import RedisBroker
from godwit.brokers.redis.url import RedisUrl, TopologyKind
from godwit.brokers.urls import connect
from godwit.config import without_password
from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.errors import BrokerUnavailable, GodwitError

TIMEOUT_SECONDS: Final = 5.0


async def examine(url: str, *, span: timedelta, clock: Clock = SYSTEM_CLOCK) -> list[Finding]:
    """Look at the servers a URL names."""
    target = RedisUrl.from_url(url)
    if target.kind is TopologyKind.SINGLE:
        return [*chain(*await _together(_server(url, span, clock), _journals(url, span)))]
    if target.kind is TopologyKind.SENTINEL:
        facts, master = await ask_sentinels(target)
        above = [topologies.sentinels(facts)]
        masters = [master] if master is not None else []
        hot: Awaitable[list[Finding]] = _nothing()
    else:
        nodes, places = await ask_cluster(target)
        above = [topologies.slots(nodes), topologies.cluster_replicas(nodes)]
        masters, hot = list(nodes.masters), _hot(url, span, len(nodes.masters), places)
    each = [_member(url_at(url, place), span, clock) for place in masters]
    found = await _together(_journals(url, span), hot, *each)
    return [*above, *found[1], *topologies.merged(dict(zip(masters, found[2:], strict=True))), *found[0]]


async def _together(*looks: Awaitable[list[Finding]]) -> list[list[Finding]]:
    """Look at several things at once; when one cannot be looked at, the others still end."""
    found = await asyncio.gather(*looks, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return found  # type: ignore[return-value]


async def _nothing() -> list[Finding]:
    return []


async def _server(url: str, span: timedelta, clock: Clock) -> list[Finding]:
    """Look at one server."""
    async with _client(url) as client:
        groups = await examine_groups(client)
        facts = await gather(client, span=span, clock=clock)
    return [*durability.judge(facts), *capacity.judge(facts), groups]


async def _member(url: str, span: timedelta, clock: Clock) -> list[Finding]:
    """Look at one server of several; one that cannot be reached does not hide the others."""
    try:
        return await _server(url, span, clock)
    except BrokerUnavailable as error:
        return [problem("servers", error.reason, "What is on this server is out of reach.", error.remedy)]


async def _hot(url: str, span: timedelta, masters: int, places: Mapping[int, str]) -> list[Finding]:
    """Say whether one slot has most of the work."""
    try:
        async with connect(url) as broker:
            before = await broker.journal.shards()
            await asyncio.sleep(span.total_seconds())
            after = await broker.journal.shards()
    except GodwitError:
        return []  # another finding reports slots without a server
    return [topologies.hot_slot(before, after, masters=masters, place_of=places)]


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


async def _journals(url: str, span: timedelta) -> list[Finding]:
    """Judge journals and counters; a server that the broker refuses has been explained above."""
    try:
        async with RedisBroker(url) as broker:
            found = await examine_journals(broker.journal, await broker.specs(), span=span)
            return [*found, counters.judge(await broker.mended())]
    except GodwitError as error:
        return [problem(CHECK, f"cannot be examined: {error.fact}", "The broker refuses this server.", error.remedy)]
