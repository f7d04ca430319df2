"""URLs of several servers, the map of slots, and URLs that do not fit what they find."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest
import redis

from godwit.brokers.redis import RedisBroker
from godwit.brokers.redis.client.errors import Refused
from godwit.brokers.redis.client.topology import Cluster, Sentinels, slot_of
from godwit.brokers.redis.url import RedisUrl, TopologyKind
from godwit.core.errors import BrokerUnavailable, InvalidSetting
from tests.servers.processes import free_ports
from tests.servers.redis import fresh
from tests.servers.redis_cluster import fresh_cluster
from tests.servers.redis_replicas import MASTER, fresh_sentinels

pytestmark = pytest.mark.xdist_group("redis-cluster")


def test_a_url_names_nodes_of_a_cluster() -> None:
    target = RedisUrl.from_url("redis+cluster://me:p%2Css@one:7000,[::1]:7001,three")
    assert target.kind is TopologyKind.CLUSTER
    assert [(seed.host, seed.port) for seed in target.seeds] == [("one", 7000), ("::1", 7001), ("three", 6379)]
    assert (target.data.username, target.data.password) == ("me", "p,ss")
    assert target.shown == "redis+cluster://one:7000,[::1]:7001,three:6379"


def test_a_url_names_sentinels_and_their_master() -> None:
    target = RedisUrl.from_url("redis+sentinel://:secret@one,two:1234/the-master/2?sentinel_password=other")
    assert (target.kind, target.master, target.data.database) == (TopologyKind.SENTINEL, "the-master", 2)
    assert [(seed.host, seed.port, seed.password) for seed in target.seeds] == [
        ("one", 26379, "other"), ("two", 1234, "other"),
    ]  # fmt: skip
    assert target.data.password == "secret"
    assert "secret" not in target.shown


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://host/3", "redis+cluster://one,,two", "redis+cluster://host:port", "redis://one,two",
        "redis+sentinel://host", "redis+sentinel://host/", "redis+sentinel://host/name/x", "redis+sentinel://h/n/1/2",
        "redis+sentinel://host/name?ssl_certfile=x", "redis+cluster://host?sentinel_password=x",
        "redis+cluster://host?replicas=many", "redis+cluster://:secret@host#part",
    ],
)  # fmt: skip
def test_a_url_that_can_mean_nothing_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        RedisUrl.from_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "key", ["orders", "godwit:{orders}:meta", "godwit:{orders#3}:l0:default", "a{}b{c}", "{", "é{x"]
)
def test_slots_are_those_of_the_server(key: str) -> None:
    with fresh_cluster().masters[0].client() as client:
        assert slot_of(key) == client.cluster("KEYSLOT", key)


def test_a_cluster_learns_from_its_map_and_from_redirections() -> None:
    cluster = Cluster(RedisUrl.from_url("redis+cluster://seed:1"))
    asked = cluster.target.seeds[0]
    assert cluster.address_of("orders") is None
    slots = [[0, 8_000, [b"", 1, b"id"]], [8_001, 16_383, [b"other", 2, b"id"], [b"replica", 3, b"id"]]]
    cluster.learn(asked, [slots, b""])
    slot = slot_of("orders")
    first = cluster.address_of("orders")
    assert first is not None
    assert (first.host, first.port) == (("seed", 1) if slot <= 8_000 else ("other", 2))
    cluster.moved(slot, "third:3", asked)
    assert [(node.host, node.port) for node in cluster.addresses()] == [("seed", 1), ("other", 2), ("third", 3)]
    moved = cluster.address_of("orders")
    assert moved is not None
    assert (moved.host, moved.port) == ("third", 3)


def test_who_answered_last_is_asked_first() -> None:
    sentinels = Sentinels(RedisUrl.from_url("redis+sentinel://one,two/name"))
    sentinels.learn(sentinels.asked()[1], [[b"10.0.0.1", b"7000"], []])
    assert [one.host for one in sentinels.asked()] == ["two", "one"]
    assert [one.place for one in sentinels.addresses()] == ["10.0.0.1:7000"]


def test_the_newest_answer_is_that_of_the_highest_epoch() -> None:
    sentinels = Sentinels(RedisUrl.from_url("redis+sentinel://one/name"))
    (asked,) = sentinels.asked()
    newest_first = [
        sentinels.newness_of(
            asked, [[b"10.0.0.1", b"7000"], [b"name", b"name", b"config-epoch", epoch, b"quorum", b"2"]]
        )
        for epoch in (b"10", b"9")
    ]
    assert newest_first[0] > newest_first[1]
    cluster = Cluster(RedisUrl.from_url("redis+cluster://seed:1"))
    slots = [[0, 16_383, [b"", 1, b"id"]]]
    texts = (b"cluster_state:ok\r\ncluster_current_epoch:10\r\n", b"cluster_state:ok\r\ncluster_current_epoch:9\r\n")
    cut_off = b"cluster_state:fail\r\ncluster_current_epoch:11\r\n"
    newest, older, minority = (cluster.newness_of(asked, [slots, text]) for text in (*texts, cut_off))
    assert newest > older > minority
    for answers in ([[], texts[0]], [hiredis.ReplyError("LOADING it starts"), texts[0]]):
        with pytest.raises(Refused):
            cluster.newness_of(asked, answers)


# What is found is not what the URL says


async def refused(url: str) -> BrokerUnavailable:
    with pytest.raises(BrokerUnavailable) as caught:
        async with RedisBroker(url):
            pass
    return caught.value


async def test_the_url_of_a_cluster_on_a_single_server_is_refused_with_the_remedy() -> None:
    error = await refused(f"redis+cluster://127.0.0.1:{fresh().port}")
    assert "it is a single server, not a node of a cluster" in error.fact
    assert "redis://" in error.remedy


async def test_the_url_of_a_single_server_on_a_node_of_a_cluster_is_refused_with_the_remedy() -> None:
    error = await refused(fresh_cluster().masters[0].url)
    assert "it is a node of a cluster, not a single server" in error.fact
    assert "redis+cluster://" in error.remedy


async def test_a_sentinel_is_neither_a_server_nor_a_node() -> None:
    port = fresh_sentinels().sentinels[0].port
    for scheme in ("redis", "redis+cluster"):
        error = await refused(f"{scheme}://127.0.0.1:{port}")
        assert "it is a sentinel" in error.fact
        assert "redis+sentinel://" in error.remedy


async def test_a_server_is_no_sentinel() -> None:
    error = await refused(f"redis+sentinel://127.0.0.1:{fresh().port}/{MASTER}")
    assert "it is a single server, not a sentinel" in error.fact


async def test_sentinels_that_do_not_know_the_master_are_named() -> None:
    url = fresh_sentinels().url.replace(MASTER, "nobody")
    error = await refused(url)
    assert "knows no master 'nobody'" in error.fact
    assert "SENTINEL MASTERS" in error.remedy


@pytest.mark.parametrize(
    "form", ["redis+cluster://127.0.0.1:{},127.0.0.1:{}", "redis+sentinel://127.0.0.1:{},127.0.0.1:{}/m"]
)
async def test_servers_that_are_not_there_are_refused_at_once(form: str) -> None:
    url = form.format(*free_ports(2))
    error = await refused(url)
    assert url.partition("://")[0] in error.fact


async def test_one_dead_address_of_several_does_not_matter() -> None:
    (dead,) = free_ports(1)
    cluster, sentinels = fresh_cluster(), fresh_sentinels()
    for url in (
        f"redis+cluster://127.0.0.1:{dead},127.0.0.1:{cluster.masters[2].port}",
        f"redis+sentinel://127.0.0.1:{dead},127.0.0.1:{sentinels.sentinels[1].port}/{MASTER}",
    ):
        async with RedisBroker(url) as broker:
            assert await broker.stats() == []


def test_the_servers_of_these_tests_are_what_they_say() -> None:
    """Otherwise all that follows would show nothing."""
    found: list[Any] = []
    for server in fresh_cluster().masters:
        with server.client() as client:
            found.append(client.info("server")["redis_mode"])
    with fresh_sentinels().sentinels[0].client() as client:
        found.append(client.info("server")["redis_mode"])
    with fresh_sentinels().replica.client() as client, pytest.raises(redis.ReadOnlyError):
        client.set("x", 1)
    assert found == ["cluster", "cluster", "cluster", "sentinel"]
