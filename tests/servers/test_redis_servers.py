"""The Redis servers of the tests are what they say: private, ours, and the same again after a kill."""

from __future__ import annotations

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.processes import ServerDown
from tests.servers.redis import Program, RedisServer, fresh, redis_server

_NEVER = Retry(NoBackoff(), 0)


@pytest.mark.parametrize("program", ["redis", "valkey"])
def test_a_killed_server_comes_back_with_what_it_confirmed(program: Program) -> None:
    with redis_server(program, appendfsync="always") as server, server.client() as client:
        client.xadd("stream", {"field": "value"})
        first = server.pid
        server.kill()
        assert not server.alive
        server.restart()
        assert server.pid != first
        assert client.xlen("stream") == 1


def test_a_left_over_server_on_the_port_is_noticed() -> None:
    with redis_server() as server:
        other = RedisServer(program="redis", port=server.port, folder=server.folder, url=server.url)
        with pytest.raises(ServerDown, match=r"answered by process|already in use"):
            other.start()
        assert not other.alive
        assert server.alive


def test_a_shared_server_is_empty_and_running_for_every_test() -> None:
    server = fresh()
    with server.client() as client:
        client.set("key", "value")
    server.kill()
    again = fresh()
    assert (again.port, again.folder) == (server.port, server.folder)
    with again.client() as client:
        assert client.dbsize() == 0


def test_options_reach_the_server() -> None:
    with redis_server(password="secret", maxmemory="64mb", lines=("maxmemory-policy noeviction",)) as server:
        with server.client() as client:
            assert client.config_get("maxmemory")["maxmemory"] == str(64 << 20)
            assert client.config_get("appendonly")["appendonly"] == "yes"
        with redis.Redis.from_url(server.url) as client:
            assert client.ping()
        with redis.Redis(port=server.port, retry=_NEVER) as client, pytest.raises(redis.AuthenticationError):
            client.ping()


def test_a_server_speaks_tls_with_a_certificate_that_clients_verify() -> None:
    with redis_server(tls=True) as server:
        with redis.Redis.from_url(server.url) as client:
            assert client.ping()
        stranger = redis.Redis(port=server.port, ssl=True, retry=_NEVER)
        with stranger, pytest.raises(redis.ConnectionError):
            stranger.ping()
