"""Three masters against one, and what waiting for a replica costs: `./dev bench redis_topologies`.

All sides run on the same machine in turns of a fraction of a second, so that their ratio counts. On two cores three
masters cannot be faster than one: the point is that nothing gets much slower.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from time import perf_counter
from typing import Final
from uuid import uuid4

from benchmarks.redis import BODY, CALL, envelopes
from benchmarks.results import REPEATS, Report, Result, report
from godwit.brokers.contract import Ack, Broker
from godwit.brokers.urls import connect
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.messages.envelope import Envelope
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import QueueSpec
from tests.servers.redis import redis_server
from tests.servers.redis_cluster import redis_cluster
from tests.servers.redis_replicas import redis_sentinels

ONE, SIX, WAITING = QueueName("one"), QueueName("six"), QueueName("waiting")
GROUP: Final = GroupName("default")
COUNT: Final = 20_000
SMALL_CALL: Final = 20
SMALL_COUNT: Final = 5_000
TURNS: Final = 5
"""In so many pieces everything is done, the sides by turns."""
UNRELATED: Final = "publish in small calls, unrelated ids"
SIX_SCRIPTS: Final = (UNRELATED, "one server", "3 masters, 6 partitions")
"""Six scripts against one, on whatever servers; the same six on one server are what has a floor."""
LEASE: Final = timedelta(minutes=5)
PULL: Final = 200
Make = Callable[[QueueName, int], list[Envelope]]


def unrelated(queue: QueueName, count: int) -> list[Envelope]:
    """Return messages whose ids have nothing in common, as those that an application makes."""
    now_ms = SYSTEM_CLOCK.now_ms()
    return [Envelope(MessageId(str(uuid4())), queue, BODY, len(BODY), now_ms, "order.created") for _ in range(count)]


async def publish(broker: Broker, queue: QueueName, count: int, call: int, make: Make = envelopes) -> float:
    """Return the seconds that calls of one size take."""
    calls = [make(queue, call) for _ in range(count // call)]
    gc.collect()
    began = perf_counter()
    for messages in calls:
        await broker.publish(messages)
    return perf_counter() - began


async def drain(broker: Broker, queue: QueueName, count: int) -> float:
    """Return the seconds that pulling and acking take."""
    gc.collect()
    began, left = perf_counter(), count
    while left:
        found = await broker.pull(queue, GROUP, worker="bench", limit=min(PULL, left), lease=LEASE)
        await broker.settle([Ack(one.ack_id, run_ms=1) for one in found])
        left -= len(found)
    return perf_counter() - began


KINDS: Final[dict[str, tuple[int, Callable[[Broker, QueueName, int], Awaitable[float]]]]] = {
    "publish": (COUNT, partial(publish, call=CALL)),
    "publish in small calls": (SMALL_COUNT, partial(publish, call=SMALL_CALL)),
    UNRELATED: (SMALL_COUNT, partial(publish, call=SMALL_CALL, make=unrelated)),
    "drain": (COUNT + 2 * SMALL_COUNT, drain),
}
"""What is measured on an empty queue, in this order, and how many messages it takes."""
Side = tuple[str, QueueSpec]
"""A URL and the queue there."""


async def in_turn(sides: dict[str, Side], repeats: int) -> dict[str, list[dict[str, float]]]:
    """Measure all sides in short turns, so that a moment in which the machine is slow hits all of them."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(repeats):
        seconds = {name: dict.fromkeys(KINDS, 0.0) for name in sides}
        async with AsyncExitStack() as stack:
            brokers = {name: await _opened(stack, *side) for name, side in sides.items()}
            for kind, (count, work) in KINDS.items():
                for _ in range(TURNS):
                    for name, broker in brokers.items():
                        seconds[name][kind] += await work(broker, sides[name][1].name, count // TURNS)
        for name, took in seconds.items():
            found[name].append({kind: KINDS[kind][0] / took[kind] for kind in KINDS})
    return found


async def _opened(stack: AsyncExitStack, url: str, spec: QueueSpec) -> Broker:
    """Return a broker with an empty queue, whose scripts are loaded; the queue is removed in the end."""
    broker = await stack.enter_async_context(connect(url))
    await broker.declare(spec)
    stack.push_async_callback(broker.remove, spec.name)
    await publish(broker, spec.name, CALL, CALL)
    await drain(broker, spec.name, CALL)
    return broker


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
            "one server": (server.url, QueueSpec(name=ONE)),
            "one server, 6 partitions": (server.url, QueueSpec(name=SIX, partitions=6)),
            "3 masters, 1 partition": (cluster.url, QueueSpec(name=ONE)),
            "3 masters, 6 partitions": (cluster.url, QueueSpec(name=SIX, partitions=6)),
            "a replica": (group.url, QueueSpec(name=ONE)),
            "min_replicas = 1": (group.url, QueueSpec(name=WAITING, min_replicas=1)),
        }
        found = asyncio.run(in_turn(sides, repeats))
    rates = [
        Result(name=f"{kind}, {name}", unit="messages/s", repeats=[one[kind] for one in measured])
        for name, measured in found.items()
        for kind in KINDS
    ]
    masters = [
        ratios(found, several, one, kind, floor=None if (kind, one, several) == SIX_SCRIPTS else 0.7)
        for several, one in (
            ("3 masters, 1 partition", "one server"),
            ("3 masters, 6 partitions", "one server, 6 partitions"),
            ("3 masters, 6 partitions", "one server"),
        )
        for kind in KINDS
    ]
    waiting = [ratios(found, "min_replicas = 1", "a replica", kind) for kind in KINDS]
    settings = {
        "bodies": f"{len(BODY)} bytes",
        "messages": f"{COUNT:,} in calls of {CALL:,}, {SMALL_COUNT:,} in calls of {SMALL_CALL}, in {TURNS} turns each",
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
