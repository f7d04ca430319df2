"""The Redis broker against the raw loop on the same server: `./dev bench redis`.

Draining, single and concurrent enqueues and latency go through the public interface in processes of their own, as in
`benchmarks.peers`; bulk publishing is measured there, and at the broker with sealed messages, since the raw loop's
bodies are ready as well.
"""

from __future__ import annotations

import asyncio
import gc
from datetime import timedelta
from time import perf_counter
from typing import Final

from redis.asyncio import Redis

from benchmarks.peers import SIDES, SINGLE, SLICES, Found, compare, effective, in_slices, reasons, share
from benchmarks.raw_redis import FIELD, RawStream
from benchmarks.results import REPEATS, Report, Result, report
from godwit.brokers.contract import Broker
from godwit.brokers.urls import connect
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.messages.envelope import Envelope
from godwit.core.names import GroupName, QueueName, new_message_id
from godwit.core.queues import GroupSpec, QueueSpec
from tests.servers.redis import RedisServer, redis_server

BODY: Final = b"x" * 200
CALL: Final = 1_000
TTL: Final = timedelta(days=7)
QUEUES: Final = {
    "one": (QueueSpec(name=QueueName("one")), 1),
    "four": (QueueSpec(name=QueueName("four")), 4),
    "ttl": (QueueSpec(name=QueueName("ttl"), ttl=TTL), 1),
}
"""Where messages are published in bulk: the queue, and how many groups it has."""


def envelopes(queue: QueueName, count: int) -> list[Envelope]:
    """Return fresh sealed messages."""
    now_ms = SYSTEM_CLOCK.now_ms()
    return [Envelope(new_message_id(), queue, BODY, len(BODY), now_ms, "order.created") for _ in range(count)]


async def publish(broker: Broker, queue: QueueName, count: int) -> float:
    """Return the messages per second of calls with a thousand each."""
    calls = [envelopes(queue, CALL) for _ in range(count // CALL)]
    gc.collect()
    began = perf_counter()
    for call in calls:
        await broker.publish(call)
    return count / (perf_counter() - began)


def publish_raw(stream: RawStream, count: int) -> float:
    """Return the messages per second of the raw loop."""
    bodies = [BODY] * count
    gc.collect()
    began = perf_counter()
    stream.publish(bodies)
    return count / (perf_counter() - began)


async def bulk(server: RedisServer, count: int, repeats: int) -> dict[str, list[float]]:
    """Publish in turn with the raw loop and to each of the queues; every repeat begins with empty ones."""
    found: dict[str, list[float]] = {"raw": [], **{name: [] for name in QUEUES}}
    for _ in range(repeats):
        server.flush()
        stream = RawStream(server.url)
        found["raw"].append(publish_raw(stream, count))
        stream.close()
        for name, (queue, groups) in QUEUES.items():
            async with connect(server.url) as broker:
                names = [GroupSpec(name=GroupName(f"g{number}")) for number in range(groups)]
                await broker.declare(queue, names)
                await publish(broker, queue.name, CALL)  # the script is loaded
                found[name].append(await publish(broker, queue.name, count))
    return found


async def single(server: RedisServer, count: int, repeats: int) -> dict[str, list[float]]:
    """Publish one by one, each awaited: at the broker, through redis-py's asyncio client, and through the raw loop."""
    found: dict[str, list[float]] = {"broker": [], "awaited": [], "raw": []}
    server.flush()
    stream = RawStream(server.url)
    async with connect(server.url) as broker, Redis.from_url(server.url) as client:
        queue = QUEUES["one"][0]
        await broker.declare(queue)
        for _ in range(repeats):
            messages = envelopes(queue.name, count)
            began = perf_counter()
            for message in messages:
                await broker.publish([message])
            found["broker"].append(count / (perf_counter() - began))
            began = perf_counter()
            for _ in range(count):
                await client.xadd("awaited", {FIELD: BODY})
            found["awaited"].append(count / (perf_counter() - began))
            began = perf_counter()
            for _ in range(count):
                stream.publish_one(BODY)
            found["raw"].append(count / (perf_counter() - began))
    stream.close()
    return found


def judged(found: Found, published: dict[str, list[float]], awaited: dict[str, list[float]]) -> list[Result]:
    """Return the numbers and Godwit's shares of the raw loop."""
    mine, raw = found["Godwit"], found["raw"]
    rates = {
        "drain by a worker process": mine["drain"],
        "drain, raw": raw["drain"],
        "bulk publish, one group": published["one"],
        "bulk publish, four groups": published["four"],
        "bulk publish, one group, a ttl": published["ttl"],
        "bulk publish, raw": published["raw"],
        "bulk through the manager": mine["bulk"],
        "bulk with a payload's JSON, raw": raw["bulk"],
        "one by one": mine["single"],
        "one by one, raw": raw["single"],
        "one by one at the broker": awaited["broker"],
        "one by one through redis-py's asyncio client": awaited["awaited"],
        "50 callers at once": mine["concurrent"],
    }
    results = [Result(name=name, unit="messages/s", repeats=values) for name, values in rates.items()]
    for name in ("p50", "p99"):
        results.append(Result(name=f"latency at 200/s, {name}", unit="ms", repeats=mine[name]))
        results.append(Result(name=f"latency at 200/s, {name}, raw", unit="ms", repeats=raw[name]))
    return [
        *results,
        share("drain against raw", mine["drain"], raw["drain"], 0.5, 0.3),
        share("bulk publish against raw, one group", published["one"], published["raw"], 1.2, 0.9),
        share("bulk publish against raw, four groups", published["four"], published["raw"], 0.7, 0.55),
        share("bulk publish against raw, one group, a ttl", published["ttl"], published["raw"], 1.2, 0.9),
        share("bulk through the manager against raw", mine["bulk"], raw["bulk"], 1.2, 0.9),
        share("one by one against raw", mine["single"], raw["single"], 0.8, 0.65),
        share("one by one at the broker against redis-py's asyncio client", awaited["broker"], awaited["awaited"]),
        share("50 callers at once against one by one", mine["concurrent"], mine["single"], 8, 5),
        share("latency p50 against raw", mine["p50"], raw["p50"], 1.5, 2, lower=True),
        share("latency p99 against raw", mine["p99"], raw["p99"], 2, 3, lower=True),
    ]


def measured(repeats: int, count: int) -> tuple[dict[str, str], list[Result]]:
    """Return the server's settings and everything measured."""
    with redis_server() as server:
        settings = effective(server)
        found = compare(server, repeats, SIDES[:2])
        for name, rates in in_slices(server, repeats).items():
            found[name] |= rates
        published = asyncio.run(bulk(server, count, repeats))
        return settings, judged(found, published, asyncio.run(single(server, 1_000, repeats)))


def run() -> Report:
    """Measure and judge."""
    count = 20_000
    settings, results = measured(REPEATS, count)
    settings |= {
        "load": f"200-byte bodies, {count:,} messages a repeat in bulk, no-op handlers, one worker process",
        "Godwit": "dedup window 10 min, journal on without bodies, leases, limits and metrics on, concurrency 100",
        "raw": "redis-py with hiredis, pipelines of 100, XREADGROUP COUNT 100, XACK + XDEL (benchmarks/raw_redis.py)",
        "levels": "bulk publish at the broker with sealed messages, everything else through the manager and the worker",
        "turns": f"through the manager and latencies: {SLICES} turns a repeat ({SINGLE} one by one) of both sides",
        "ttl": f"{TTL.days} days where a row says so; the manager's queue has its own",
    }
    return report("redis", settings, results, reasons(results))
