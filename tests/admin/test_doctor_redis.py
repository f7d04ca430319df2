"""The doctor's findings about a Redis server, each provoked on a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis

from godwit.admin.doctor import Finding, Severity, examine, worst
from godwit.admin.doctor.redis import capacity, durability
from godwit.admin.doctor.redis import examine as examine_redis
from godwit.admin.doctor.redis.facts import RedisFacts, gather
from godwit.admin.doctor.redis.groups import examine_groups
from godwit.brokers.redis import RedisBroker
from godwit.brokers.redis.layout import keys
from godwit.core.clock import ManualClock
from godwit.core.errors import BrokerUnavailable
from godwit.core.names import DEFAULT_GROUP
from godwit.core.queues import QueueSpec
from tests.conformance.harness import Q
from tests.faults.remote_harness import remote
from tests.servers.redis import RedisServer, fresh, redis_server
from tests.servers.slow import slow_path
from tests.waiting import eventually

SPAN = timedelta(milliseconds=10)
OK, NOTE, WARNING, PROBLEM = Severity


async def examined(server: RedisServer, **options: Any) -> dict[str, Finding]:
    findings = await examine_redis(server.url, **({"span": SPAN} | options))
    return {finding.check: finding for finding in findings}


def explained(found: Finding, severity: Severity) -> str:
    """Check that a finding is that bad and explained; return what was found."""
    assert found.severity is severity, found
    if severity in {WARNING, PROBLEM}:
        assert found.why.endswith(".")
        assert found.remedy.endswith(".")
    return found.found


@asynccontextmanager
async def client_of(server: RedisServer) -> AsyncIterator[Redis]:
    async with Redis.from_url(server.url) as client:
        yield client


@pytest.mark.parametrize("program", ["redis", "valkey"])
async def test_a_server_with_sound_settings_gives_no_complaint(program: Any) -> None:
    with redis_server(program, maxmemory="256mb") as server:
        findings = await examine(server.url, span=SPAN)
        assert worst(findings) is NOTE, findings
        assert [finding.check for finding in findings if finding.severity is NOTE] == ["replicas"]


async def test_a_server_that_speaks_tls_is_examined() -> None:
    with redis_server(tls=True) as server:
        assert "version" in await examined(server)


@pytest.mark.parametrize(
    ("lines", "check", "severity", "words"),
    [
        (["appendonly no"], "persistence", PROBLEM, "nothing is written to disk"),
        (["appendonly no", "save 900 1"], "persistence", PROBLEM, "snapshots only (save 900 1)"),
        (["appendonly no"], "fsync", NOTE, "nothing to sync"),
        (["appendfsync no"], "fsync", WARNING, "appendfsync no"),
        (["no-appendfsync-on-rewrite yes"], "fsync", WARNING, "no-appendfsync-on-rewrite yes"),
        (["appendfsync always"], "fsync", OK, "always"),
        (["maxmemory 100mb", "maxmemory-policy allkeys-lru"], "eviction", PROBLEM, "allkeys-lru; 0 keys evicted"),
        (["maxmemory-policy volatile-ttl"], "eviction", WARNING, "without a memory limit"),
        (["timeout 5"], "connections", WARNING, "closed after 5 s"),
        (["auto-aof-rewrite-percentage 0"], "append-only file", WARNING, "never rewritten"),
        (["maxmemory 1500kb"], "memory", NOTE, ""),
    ],
)
async def test_a_setting_that_costs_messages_is_named(
    lines: list[str], check: str, severity: Severity, words: str
) -> None:
    server = fresh()
    with server.client() as client:
        before = client.config_get(*(line.split()[0] for line in lines))
        try:
            for line in lines:
                client.config_set(*line.split(maxsplit=1))
            found = (await examined(server))[check]
        finally:
            for name, value in before.items():
                client.config_set(name, value)
    if check == "memory":  # a nearly empty server already fills most of such a limit
        assert found.severity in {OK, WARNING, PROBLEM}
        assert "1.5 MB" in found.found
    else:
        assert words in explained(found, severity)


async def test_memory_near_its_limit_is_told_in_two_steps() -> None:
    with redis_server(maxmemory="32mb") as server, server.client() as client:
        for share, severity in ((0.6, OK), (0.8, WARNING), (0.95, PROBLEM)):
            while client.info("memory")["used_memory"] < share * (32 << 20):
                client.rpush("filling", *("x" * 10_000 for _ in range(20)))
            assert "head-room" in explained((await examined(server))["memory"], severity)


async def test_a_replica_is_refused_and_its_master_knows_of_it() -> None:
    with (
        redis_server(lines=("repl-diskless-sync-delay 0",)) as master,
        redis_server(lines=(f"replicaof 127.0.0.1 {master.port}",)) as replica,
        replica.client() as client,
    ):
        await eventually(lambda: client.info("replication")["master_link_status"] == "up", what="a replica")
        assert f"a replica of 127.0.0.1:{master.port}" in explained((await examined(replica))["role"], PROBLEM)
        assert explained((await examined(master))["replicas"], OK) == "1"


async def test_a_server_that_hides_its_settings_is_examined_as_far_as_possible() -> None:
    with redis_server(lines=('rename-command CONFIG ""',)) as server:
        found = await examined(server)
    assert "cannot be seen" in explained(found["fsync"], NOTE)
    assert explained(found["eviction"], OK) == "noeviction"


async def test_too_many_connections_are_told() -> None:
    with redis_server(lines=("maxclients 20",)) as server:
        clients = [server.client() for _ in range(17)]
        for client in clients:
            client.ping()
        assert "of 20" in explained((await examined(server))["connections"], WARNING)
        for client in clients:
            client.close()


async def test_a_file_that_is_rewritten_all_the_time_is_told() -> None:
    with redis_server() as server:
        async with client_of(server) as client:
            enough = asyncio.Event()

            async def write() -> None:
                while not enough.is_set():
                    await client.xadd("stream", {"body": "x" * 1_000_000}, maxlen=2)

            writing = asyncio.create_task(write())
            found = await examined(server, span=timedelta(milliseconds=500))
            enough.set()
            await writing
    assert "rewritten about every" in explained(found["append-only file"], WARNING)


async def test_a_distant_server_is_told_from_a_near_one() -> None:
    server = fresh()
    for delay, severity in ((0.01, WARNING), (0.06, PROBLEM)):
        async with slow_path(server.port, seconds=delay) as port, Redis(port=port) as client:
            facts = await gather(client, span=SPAN)
        assert "a round trip" in explained(capacity.latency(facts), severity)


@pytest.mark.parametrize(("apart", "severity"), [(0.0, OK), (3.0, WARNING), (-60.0, PROBLEM)])
async def test_clocks_that_differ_are_told(apart: float, severity: Severity) -> None:
    server = fresh()
    with server.client() as client:
        seconds, micros = client.time()
    clock = ManualClock(seconds * 1000 + micros // 1000 - int(apart * 1000))
    found = (await examined(server, clock=clock))["clock"]
    assert ("behind" if apart < 0 else "ahead") in explained(found, severity)


async def test_consumers_that_nobody_uses_are_told_and_those_that_hold_entries_are_worse() -> None:
    server = fresh()
    async with client_of(server) as client:
        await client.xgroup_create("stream", "readers", id="0", mkstream=True)
        assert "1 groups of 1 streams, 0 consumers" in explained(await examine_groups(client), OK)
        await client.xgroup_createconsumer("stream", "readers", "gone")
        at_once = timedelta(milliseconds=-1)
        assert "'gone' of 'readers' on 'stream'" in explained(await examine_groups(client, stale=at_once), NOTE)
        assert explained(await examine_groups(client), OK)
        await client.xadd("stream", {"field": "value"})
        await client.xreadgroup("readers", "dead", {"stream": ">"})
        found = explained(await examine_groups(client, stale=at_once), WARNING)
        assert "1 entries are held by 1 silent consumers, such as 'dead'" in found


async def test_a_journal_that_holds_less_than_it_should_is_told() -> None:
    server = fresh()
    async with remote(server.url) as harness:
        await harness.declare(journal_max_bytes=5_000_000, journal_keep=timedelta(days=7))

        enough = asyncio.Event()

        async def publish() -> None:
            number = 0
            while not enough.is_set():
                number += 1
                await harness.publish(*(f"m{number}-{part}" for part in range(50)))

        publishing = asyncio.create_task(publish())
        found = await examined(server, span=timedelta(seconds=1))
        enough.set()
        await publishing
    assert "/s now, holds" in explained(found[f"journal of {Q}#0"], WARNING)


def changed(facts: RedisFacts, **info: Any) -> RedisFacts:
    return msgspec.structs.replace(facts, info={**facts.info, **info})


async def test_what_cannot_be_provoked_here_is_judged_from_what_such_a_server_says() -> None:
    server = fresh()
    async with client_of(server) as client:
        facts = await gather(client, span=SPAN)
    assert explained(durability.version(changed(facts, redis_version="6.0.16")), PROBLEM) == "Redis 6.0.16"
    assert explained(durability.version(changed(facts, redis_version="6.2.14")), NOTE) == "Redis 6.2.14"
    assert "write" in explained(durability.persistence(changed(facts, aof_last_write_status="err")), PROBLEM)
    assert "rewrite" in explained(durability.persistence(changed(facts, aof_last_bgrewrite_status="err")), WARNING)
    assert "loading" in explained(durability.persistence(changed(facts, loading=1)), WARNING)
    assert "450 ms" in explained(capacity.growth(changed(facts, latest_fork_usec=450_000)), WARNING)
    assert "refused" in explained(capacity.connections(changed(facts, rejected_connections=3)), WARNING)
    used = {"used_memory": 900, "total_system_memory": 1_000}
    assert "no limit" in explained(capacity.memory(changed(facts, **used)), PROBLEM)
    torn = {"used_memory": 1 << 28, "used_memory_rss": 1 << 30, "mem_fragmentation_ratio": 4.0}
    assert "4.00 times" in explained(capacity.fragmentation(changed(facts, **torn)), NOTE)
    stopped = msgspec.structs.replace(facts, round_trip_worst=1.0)
    assert "the slowest" in explained(capacity.latency(stopped), WARNING)


async def test_a_server_that_cannot_be_asked_says_why_and_what_to_do() -> None:
    with redis_server(password="secret") as server:
        assert "version" in await examined(server)
        with pytest.raises(BrokerUnavailable, match="password") as refused:
            await examine(f"redis://:wrong@127.0.0.1:{server.port}")
        assert "wrong" not in refused.value.fact
    with pytest.raises(BrokerUnavailable, match="Check that the server runs"):
        await examine(server.url)


async def test_counters_that_were_counted_anew_are_told() -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=Q))
        assert explained((await examined(server))["counters"], OK) == "agree with what is stored"
        with server.client() as client:
            client.zadd(keys.block(Q, DEFAULT_GROUP)[keys.GROUP_PARTS.index("again")], {"7": 7})
            client.hset(keys.block(Q, DEFAULT_GROUP)[0], "recount", 1)
        told = explained((await examined(server))["counters"], WARNING)
        assert "0 corrections in 1 groups; 1 groups wait to be counted, such as group 'default' of queue" in told
        await broker.maintain()
        told = explained((await examined(server))["counters"], WARNING)
        assert "1 corrections in 1 groups, the last at" in told
        assert "places of nothing (1)" in told
        await broker.remove(Q)
        assert explained((await examined(server))["counters"], OK)
