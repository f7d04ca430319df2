"""Three masters against one, and what waiting for a replica costs: `./dev bench redis_topologies`.

Both sides run in the same minutes on the same machine, one repeat of each in turn, so that only their ratio counts. On
two cores three masters cannot be faster than one: the point is that nothing gets much slower.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import perf_counter
from typing import Final
from uuid import uuid4

from benchmarks.redis import BODY, CALL, envelopes
from benchmarks.results import REPEATS, Report, Result, report
from godwit.brokers.contract import Ack, Broker
from godwit.brokers.urls import connect
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.envelope import Envelope
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import QueueSpec
from tests.servers.redis import redis_server
from tests.servers.redis_cluster import redis_cluster
from tests.servers.redis_replicas import redis_sentinels

QUEUE: Final = QueueName("orders")
GROUP: Final = GroupName("default")
COUNT: Final = 20_000
SMALL_CALL: Final = 20
SMALL_COUNT: Final = 2_000
UNRELATED: Final = "publish in small calls, unrelated ids"
SIX_SCRIPTS: Final = (UNRELATED, "one server", "3 masters, 6 partitions")
"""Six scripts against one, on whatever servers; the same six on one server are what has a floor."""
LEASE: Final = timedelta(minutes=5)
PULL: Final = 200


def unrelated(count: int) -> list[Envelope]:
    """Return messages whose ids have nothing in common, as those that an application makes."""
    now_ms = SYSTEM_CLOCK.now_ms()
    return [Envelope(MessageId(str(uuid4())), QUEUE, BODY, len(BODY), now_ms, "order.created") for _ in range(count)]


def together(count: int) -> list[Envelope]:
    """Return messages whose ids are made here, one after the other."""
    return envelopes(QUEUE, count)


async def publish(broker: Broker, count: int, call: int, make: Callable[[int], list[Envelope]] = together) -> float:
    """Return the messages per second of calls of one size."""
    calls = [make(call) for _ in range(count // call)]
    gc.collect()
    began = perf_counter()
    for messages in calls:
        await broker.publish(messages)
    return count / (perf_counter() - began)


async def drain(broker: Broker, count: int) -> float:
    """Return the messages per second of pulling and acking."""
    gc.collect()
    began, left = perf_counter(), count
    while left:
        found = await broker.pull(QUEUE, GROUP, worker="bench", limit=PULL, lease=LEASE)
        await broker.settle([Ack(one.ack_id, run_ms=1) for one in found])
        left -= len(found)
    return count / (perf_counter() - began)


async def measure(url: str, spec: QueueSpec) -> dict[str, float]:
    """Publish in large calls and in small ones, and drain everything, on an empty queue."""
    async with connect(url) as broker:
        await broker.declare(spec)
        await publish(broker, CALL, CALL)  # the scripts are loaded
        await drain(broker, CALL)
        found = {
            "publish": await publish(broker, COUNT, CALL),
            "publish in small calls": await publish(broker, SMALL_COUNT, SMALL_CALL),
            UNRELATED: await publish(broker, SMALL_COUNT, SMALL_CALL, unrelated),
            "drain": await drain(broker, COUNT + 2 * SMALL_COUNT),
        }
        await broker.remove(QUEUE)
    return found


Side = Callable[[], Awaitable[dict[str, float]]]


async def in_turn(sides: dict[str, Side], repeats: int) -> dict[str, list[dict[str, float]]]:
    """Measure all sides, one repeat of each in turn."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            found[name].append(await side())
    return found


def side(url: str, spec: QueueSpec) -> Side:
    """Return a measurement that can be repeated."""
    return lambda: measure(url, spec)


def ratios(
    found: dict[str, list[dict[str, float]]], one: str, other: str, what: str, *, floor: float | None = None
) -> Result:
    """Return one side against another, repeat by repeat."""
    pairs = zip(found[one], found[other], strict=True)
    return Result(
        name=f"{what}: {one} against {other}",
        unit="ratio",
        repeats=[mine[what] / its[what] for mine, its in pairs],
        floor=floor,
    )


def run(repeats: int = REPEATS) -> Report:
    """Measure everything."""
    with redis_server() as server, redis_cluster() as cluster, redis_sentinels() as group:
        sides = {
            "one server": side(server.url, QueueSpec(name=QUEUE)),
            "one server, 6 partitions": side(server.url, QueueSpec(name=QUEUE, partitions=6)),
            "3 masters, 1 partition": side(cluster.url, QueueSpec(name=QUEUE)),
            "3 masters, 6 partitions": side(cluster.url, QueueSpec(name=QUEUE, partitions=6)),
            "a replica": side(group.url, QueueSpec(name=QUEUE)),
            "min_replicas = 1": side(group.url, QueueSpec(name=QUEUE, min_replicas=1)),
        }
        found = asyncio.run(in_turn(sides, repeats))
    kinds = ("publish", "publish in small calls", UNRELATED, "drain")
    rates = [
        Result(name=f"{kind}, {name}", unit="messages/s", repeats=[one[kind] for one in measured])
        for name, measured in found.items()
        for kind in kinds
    ]
    masters = [
        ratios(found, several, one, kind, floor=None if (kind, one, several) == SIX_SCRIPTS else 0.7)
        for several, one in (
            ("3 masters, 1 partition", "one server"),
            ("3 masters, 6 partitions", "one server, 6 partitions"),
            ("3 masters, 6 partitions", "one server"),
        )
        for kind in kinds
    ]
    waiting = [ratios(found, "min_replicas = 1", "a replica", kind) for kind in kinds]
    settings = {
        "bodies": f"{len(BODY)} bytes",
        "messages": f"{COUNT:,} in calls of {CALL:,}, {SMALL_COUNT:,} in calls of {SMALL_CALL}",
        "server": "appendonly yes, appendfsync everysec, Redis 7.0 on loopback (WAIT, not WAITAOF)",
    }
    remark = (
        "The same queue of 6 partitions on three masters and on one server, and against one partition on one server: "
        "there the difference is mostly what partitions cost, on one server as well. Messages whose ids Godwit made "
        "one after the other are stored together: twenty are about 1.7 scripts. Twenty with ids or ordering keys of "
        "their own are six scripts of three messages, on one server too, and cost about twice as much as the one "
        "script of a single partition; that row compares layouts, not servers, and has no floor. Publish those in "
        "larger calls, or to queues of one partition, where rates are high."
    )
    return report("redis_topologies", settings, [*masters, *waiting, *rates], [remark])
