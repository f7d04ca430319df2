"""The doctor on a cluster and on sentinels: what it says of healthy ones, and of each thing that can be wrong."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

import pytest

from godwit.admin.doctor import Finding, Severity, examine
from godwit.admin.doctor.redis.queries import url_at
from godwit.admin.doctor.redis.topologies import ClusterFacts, SentinelFacts, lag, merged, read_nodes, sentinels, slots
from godwit.brokers.redis import RedisBroker
from godwit.core.errors import BrokerUnavailable
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.queues import QueueSpec
from tests.servers.processes import HOST
from tests.servers.redis_cluster import fresh_cluster, redis_cluster
from tests.servers.redis_replicas import NEVER_MS, fresh_sentinels, redis_sentinels
from tests.waiting import eventually

pytestmark = pytest.mark.xdist_group("redis-cluster")

SPAN = timedelta(milliseconds=100)


async def examined(url: str) -> dict[str, Finding]:
    return {finding.check: finding for finding in await examine(url, span=SPAN)}


async def test_a_cluster_that_is_well_is_said_to_be() -> None:
    cluster = fresh_cluster()
    async with RedisBroker(cluster.url) as broker:
        await broker.declare(QueueSpec(name="orders", partitions=6))
        await broker.publish([seal(Message(queue="orders")) for _ in range(2_000)])
    found = await examined(cluster.url)
    assert found["slots"].severity is Severity.OK
    assert "all 16,384 covered" in found["slots"].found
    assert found["hot slot"].severity is Severity.OK
    assert found["role"].found == "master, cluster (3 of 3 servers)"
    assert found["replicas of masters"].severity is Severity.NOTE
    assert [one.severity for name, one in found.items() if name.startswith("journal of orders#")] == [Severity.OK] * 6


async def test_one_queue_with_all_the_work_is_a_hot_slot() -> None:
    cluster = fresh_cluster()
    async with RedisBroker(cluster.url) as broker:
        await broker.declare(QueueSpec(name="orders"))
        await broker.declare(QueueSpec(name="rare", partitions=6))
        await broker.publish([seal(Message(queue="orders")) for _ in range(2_000)])
        await broker.publish([seal(Message(queue="rare")) for _ in range(20)])
    found = (await examined(cluster.url))["hot slot"]
    assert found.severity is Severity.WARNING
    assert "orders#0" in found.found
    assert "partitions = 6" in found.remedy


async def test_slots_that_nobody_serves_are_a_problem() -> None:
    with redis_cluster(node_timeout_ms=1_000) as cluster:
        cluster.masters[2].kill()
        asked = f"redis+cluster://{HOST}:{cluster.masters[0].port}"

        async def told() -> bool:
            found = (await examined(asked))["slots"]
            return found.severity is Severity.PROBLEM and "slots are uncovered" in found.found

        await eventually(told, within=timedelta(seconds=30), what="the failure told")


async def test_sentinels_that_are_well_are_said_to_be() -> None:
    group = fresh_sentinels()
    group.await_sync()
    found = await examined(group.url)
    assert found["sentinels"].severity is Severity.OK
    assert found["replicas"].severity is Severity.OK
    assert found["role"].found == "master, standalone"
    with pytest.raises(BrokerUnavailable, match="know no master 'nobody'"):
        await examine(group.url.rpartition("/")[0] + "/nobody", span=SPAN)


async def test_lost_sentinels_and_a_replica_that_lags_are_told() -> None:
    with redis_sentinels(down_after_ms=NEVER_MS) as group:
        os.kill(group.replica.pid, signal.SIGSTOP)
        group.sentinels[2].kill()
        async with RedisBroker(group.url) as broker:
            await broker.declare(QueueSpec(name="orders"))
            body = "x" * 50_000
            for _ in range(40):
                await broker.publish([seal(Message(queue="orders", payload=body)) for _ in range(4)])
        found = await examined(group.url)
        os.kill(group.replica.pid, signal.SIGCONT)
        assert found["replicas"].severity is Severity.WARNING
        assert "behind" in found["replicas"].found
        assert found["sentinels"].severity is Severity.WARNING
        assert f"{HOST}:{group.sentinels[2].port} of the URL do not answer" in found["sentinels"].found


def test_what_sentinels_can_say() -> None:
    facts = SentinelFacts(answered=3, silent=(), known=3, quorum=2, usable=True)
    assert sentinels(facts).severity is Severity.OK
    lonely = SentinelFacts(answered=1, silent=(), known=2, quorum=2, usable=True)
    assert sentinels(lonely).severity is Severity.WARNING
    broken = SentinelFacts(answered=1, silent=(), known=3, quorum=2, usable=False, why_not="1 usable Sentinels")
    assert (sentinels(broken).severity, "1 usable" in sentinels(broken).found) == (Severity.PROBLEM, True)


def test_the_list_of_nodes_is_read() -> None:
    facts = read_nodes(
        "aaa 10.0.0.1:1@11 myself,master - 0 0 1 connected 0-8000 [77->-bbb]\n"
        "bbb 10.0.0.2:2@12,host master - 0 0 2 connected 8001-16382 16383\n"
        "ccc 10.0.0.3:3@13 slave aaa 0 0 1 connected\n"
        "ddd 10.0.0.4:4@14 master,fail - 0 0 3 disconnected\n"
    )
    assert facts == ClusterFacts(
        masters={"10.0.0.1:1": 8_001, "10.0.0.2:2": 8_383}, bare=["10.0.0.2:2"], failing=["10.0.0.4:4"], moving=1
    )
    assert slots(facts).severity is Severity.WARNING
    assert slots(ClusterFacts(masters=facts.masters, moving=1)).severity is Severity.NOTE
    assert slots(ClusterFacts(masters={"10.0.0.1:1": 5})).severity is Severity.PROBLEM


def test_the_worst_of_several_servers_is_told_with_its_name() -> None:
    fine = Finding(check="memory", severity=Severity.OK, found="little")
    bad = Finding(check="memory", severity=Severity.PROBLEM, found="full")
    (one,) = merged({"a:1": [fine], "b:2": [bad], "c:3": [fine]})
    assert (one.severity, one.found) == (Severity.PROBLEM, "b:2: full (1 of 3 servers)")


def test_the_replica_furthest_behind_counts() -> None:
    replica = {"ip": "10.0.0.9", "port": 7, "offset": 100, "lag": 3}
    assert lag({"master_repl_offset": 500, "slave0": {**replica, "lag": 0}, "slave1": replica}) == (
        "10.0.0.9:7",
        400,
        3,
    )
    assert lag({"connected_slaves": 0}) is None


@pytest.mark.parametrize(
    ("url", "one"),
    [
        ("redis+cluster://me:pw@a,b", "redis://me:pw@c:1/0"),
        (
            "rediss+sentinel://:pw@a:1,b:2/name/3?ssl_ca_certs=x&sentinel_password=y",
            "rediss://:pw@c:1/3?ssl_ca_certs=x",
        ),
        ("redis+sentinel://a/name?replicas=memory", "redis://c:1/0"),
    ],
)
def test_each_server_is_entered_as_the_url_of_all_says(url: str, one: str) -> None:
    assert url_at(url, "c:1") == one
