"""Shared values on Redis: the values of one prefix cost the readers of another nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, cast

from redis.crc import key_slot

from godwit.brokers.contract import Shared
from godwit.brokers.redis import RedisBroker
from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.shared import AT_ONCE
from tests.servers.redis import RedisServer, fresh

MANY: Final = AT_ONCE + 10
SOON: Final = timedelta(milliseconds=1)


def test_all_keys_of_shared_values_are_in_one_slot_and_have_our_name() -> None:
    assert len({key_slot(key.encode()) for key in keys.SHARED}) == 1
    assert all(key.startswith("godwit:") for key in keys.SHARED)  # what the documents ask users to permit


async def test_looking_for_some_values_reads_no_others() -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        await _fill(broker.shared, "sink/a/")
        await broker.shared.put("gate/pause/orders", b"now", expected=None)
        with server.client() as client:
            client.config_resetstat()
        assert list(await broker.shared.scan("gate/")) == ["gate/pause/orders"]
        await broker.maintain()
        assert _reads(server) == {"hget": 1}


async def test_many_values_go_in_steps_and_leave_nothing() -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        await _fill(broker.shared, "sink/a/")
        await _fill(broker.shared, "sink/b/", ttl=SOON)
        await broker.shared.clear("sink/a/", "sink/a0")
        await broker.maintain()
        assert await broker.shared.scan("") == {}
    values, *indexes = keys.SHARED
    with server.client() as client:
        assert client.hkeys(values) == [b"version"]
        assert client.exists(*indexes) == 0


async def _fill(shared: Shared, prefix: str, *, ttl: timedelta | None = None) -> None:
    for number in range(MANY):
        await shared.put(f"{prefix}{number:06}", b"", expected=None, ttl=ttl)


def _reads(server: RedisServer) -> dict[str, int]:
    """Return how often hashes were read, by command."""
    with server.client() as client:
        stats = cast("dict[str, Any]", client.info("commandstats"))
    asked = {command: stats.get(f"cmdstat_{command}", {}).get("calls", 0) for command in ("hget", "hgetall", "hmget")}
    return {command: calls for command, calls in asked.items() if calls}
