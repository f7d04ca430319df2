"""The long run on Redis: `./dev soak --broker redis`.

A storm of kills over 100,000 messages in which the server dies too, then 1,000,000 messages through one queue: what one
costs above an empty and a full queue and beside many that wait for their time, and whether memory, keys and entries
return to where they were.
"""

from __future__ import annotations

import asyncio
import gc
import secrets
import tempfile
from datetime import timedelta
from pathlib import Path
from random import Random
from time import process_time
from typing import Final

from redis import Redis
from rich.console import Console

from benchmarks.results import Report, Result, ratios, report
from godwit.brokers.contract import Ack, Broker
from godwit.brokers.urls import connect
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.messages.envelope import Envelope
from godwit.core.names import GroupName, QueueName, new_message_id
from godwit.core.queues import QueueSpec
from tests.faults.child_processes import ChildProcesses
from tests.faults.random_kills import ORDERED, RandomKills
from tests.faults.reconciliation import Reconciliation
from tests.faults.redis.test_growth_redis import footprint, used
from tests.faults.remote_harness import remote
from tests.servers.redis import RedisServer, redis_server

QUEUE, GROUP = QueueName("q"), GroupName("default")
BODY: Final = b"x" * 200
CALL: Final = 1_000
PROBE: Final = 10_000
DELAYED: Final = 100_000
REPEATS: Final = 5
LEASE: Final = timedelta(minutes=30)
WINDOW: Final = timedelta(seconds=2)
LAST: Final = timedelta(minutes=5)


async def chaos(messages: int, kills: int) -> tuple[Reconciliation, int]:
    """Kill publishers, workers and the server at random; return the judgement and how often the server died.

    The server dies when what it answered is written: what a kill costs while its disk lags is in docs/howto/redis.md.
    """
    children = ChildProcesses()
    with redis_server() as server, tempfile.TemporaryDirectory(prefix="godwit-soak-") as place:
        async with remote(server.url) as harness:
            await harness.declare(ORDERED)
            raging = RandomKills(
                children=children,
                place=Path(place),
                random=Random(secrets.randbits(32)),
                count=messages,
                url=server.url,
                broker_kill=server.crash,
            )
            try:
                raging.begin()
                await raging.run(kills)
                return await raging.end(harness, within=LAST), raging.broker_kills
            finally:
                children.kill_all()


def envelopes(count: int, due: timedelta | None = None) -> list[Envelope]:
    """Return fresh sealed messages, ready or due later."""
    now_ms = SYSTEM_CLOCK.now_ms()
    due_ms = None if due is None else now_ms + int(due.total_seconds() * 1000)
    return [Envelope(new_message_id(), QUEUE, BODY, len(BODY), now_ms, deliver_at_ms=due_ms) for _ in range(count)]


async def fill(broker: Broker, count: int, due: timedelta | None = None) -> None:
    """Make a backlog."""
    for _ in range(count // CALL):
        await broker.publish(envelopes(CALL, due))


async def cost(broker: Broker, client: Redis) -> float:
    """Return the processor time, here and on the server, of publishing, pulling and acking one message."""
    calls = [envelopes(CALL) for _ in range(PROBE // CALL)]
    gc.collect()
    began = spent(client)
    for call in calls:
        await broker.publish(call)
    await drain(broker, PROBE)
    return (spent(client) - began) / PROBE


def spent(client: Redis) -> float:
    """Return the seconds of a processor that this process and the server have used."""
    found = client.info("cpu")
    return process_time() + float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


async def drain(broker: Broker, count: int) -> None:
    """Pull and ack so many."""
    left = count
    while left > 0:
        found = await broker.pull(QUEUE, GROUP, worker="soak", limit=min(200, left), lease=LEASE)
        await broker.settle([Ack(one.ack_id) for one in found])
        left -= len(found)


async def through(server: RedisServer, ready: int) -> list[Result]:
    """Measure above backlogs, drain them, and see what is left."""
    with server.client() as client:
        async with connect(server.url) as broker:
            spec = QueueSpec(name=QUEUE, dedup_window=WINDOW, journal_keep=WINDOW)
            await broker.declare(spec)
            low = [await cost(broker, client) for _ in range(REPEATS)]
            await _settle_down(broker)
            empty, start = used(client), footprint(client)
            await fill(broker, ready)
            held = used(client)
            high = [await cost(broker, client) for _ in range(REPEATS)]
            # Until now the server also cleared away what publishing so many left behind, and rewrote its file.
            await _settle_down(broker)
            await _at_rest(client)
            rested = [await cost(broker, client) for _ in range(REPEATS)]
            await drain(broker, ready)
            await _settle_down(broker)
            end, after = footprint(client), used(client)
            # Last, because the ids of messages due later are remembered until then.
            await fill(broker, DELAYED, timedelta(hours=1))
            waiting = [await cost(broker, client) for _ in range(REPEATS)]
    return [
        Result(
            name=f"cost at {ready:,} ready",
            unit="x",
            repeats=ratios(high, low),
            goal=1.2,
            floor=1.5,
            lower_is_better=True,
        ),
        Result(
            name=f"cost at {ready:,} ready, once their publishing is cleared away",
            unit="x",
            repeats=ratios(rested, low),
            lower_is_better=True,
        ),
        Result(
            name=f"cost at {DELAYED:,} delayed",
            unit="x",
            repeats=ratios(waiting, low),
            goal=1.2,
            floor=1.5,
            lower_is_better=True,
        ),
        Result(name="memory of a ready message, journal included", unit="bytes", repeats=[(held - empty) / ready]),
        Result(
            name="keys more than at the start",
            unit="keys",
            repeats=[end["keys"] - start["keys"]],
            floor=1,
            lower_is_better=True,
        ),
        Result(
            name="entries more than at the start",
            unit="entries",
            repeats=[end["entries"] - start["entries"]],
            floor=100,
            lower_is_better=True,
        ),
        Result(
            name="memory at the end against the start",
            unit="x",
            repeats=[after / empty],
            floor=1.5,
            lower_is_better=True,
        ),
    ]


async def _at_rest(client: Redis) -> None:
    """Wait until the server does not rewrite its file any more."""
    while client.info("persistence")["aof_rewrite_in_progress"]:  # noqa: ASYNC110 (the server tells nobody)
        await asyncio.sleep(0.1)


async def _settle_down(broker: Broker) -> None:
    """Let the dedup window pass and tidy up."""
    for _ in range(2):
        await asyncio.sleep(2 * WINDOW.total_seconds())
        await broker.maintain()
        await broker.journal.trim()


def soak(*, messages: int, ready: int, kills: int, console: Console) -> Report:
    """Run both parts."""
    with console.status(f"a storm over {messages:,} messages ..."):
        found, died = asyncio.run(chaos(messages, kills))
    console.print(found)
    with console.status(f"{ready:,} messages through one queue ..."), redis_server() as server:
        measured = asyncio.run(through(server, ready))

    def never(name: str, count: float) -> Result:
        return Result(name=name, unit="messages", repeats=[count], goal=0, floor=0, lower_is_better=True)

    results = [
        Result(name="messages accepted and done", unit="messages", repeats=[found.done]),
        Result(name="kill -9 of the server", unit="times", repeats=[died]),
        Result(name="held by the killed", unit="messages", repeats=[found.held]),
        Result(name="delivered again", unit="messages", repeats=[found.repeated]),
        never("lost", found.lost),
        never("delivered again without a crash of its worker", found.unexplained),
        never("out of order", found.out_of_order),
        *measured,
    ]
    settings = {
        "storm": f"{messages:,} messages, 2 publishers, 4 workers, {kills} kills, a fifth of them of the server",
        "server": "Redis, appendonly yes, appendfsync everysec",
        "cost": "processor time of client and server: the machine's own is taken away at times",
        "queue": f"dedup window and journal of {WINDOW.total_seconds():g} s, so that what is done can be gone",
    }
    return report("redis-soak", settings, results)
