"""Schedulers: loading a campaign, claiming and enqueueing, and a tick beside many future schedules.

GODWIT_BENCH_ROWS (1,000,000), GODWIT_BENCH_DUE (50,000) and GODWIT_BENCH_FUTURE (10,000,000, on PostgreSQL) make it
smaller. Ratios are taken inside one run: against a bare COPY, and between a full and a nearly empty table.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import perf_counter, process_time

import asyncpg

from benchmarks.effective_postgres import postgres_settings
from benchmarks.results import Report, Result, ratios, report
from godwit.brokers.memory import MemoryBroker
from godwit.core.clock import utc_now
from godwit.core.messages.message import Message
from godwit.core.queues import QueueSpec
from godwit.core.settings import Settings
from godwit.manager import MessageQueueManager
from godwit.runtime.scheduler.campaigns import Row
from godwit.store.urls import connect
from tests.servers.postgres import DURABLE, fresh_database, postgres_server

ROWS = int(os.environ.get("GODWIT_BENCH_ROWS", "1000000"))
FUTURE = int(os.environ.get("GODWIT_BENCH_FUTURE", "10000000"))
DUE = int(os.environ.get("GODWIT_BENCH_DUE", "50000"))
FEW = 10_000
LOADS = 3
PAYLOAD = {"name": "Somebody Somewhere", "text": "Happy birthday to you, and many more of them"}
REMARKS = (
    (
        "Loading on PostgreSQL: one thread packs rows while the server stores those before them, so that the slower of "
        "the two is what counts; here that is packing, a third of which is the benchmark making its messages."
    ),
    (
        "Loading on SQLite: keys come in order here, and their ids lie together in the index (decision 0120). Keys in "
        "no order touch most of its pages with every batch: 40,000 rows/s with UUIDs as keys."
    ),
)
FUTURE_ROWS = """
INSERT INTO schedule_firings (id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope)
SELECT id, 'future', n::text, 'mail', id::text, at, at, '{}'
FROM (
    SELECT gen_random_uuid() AS id, n, now() + interval '2 hours' + n * interval '1 second' AS at
    FROM generate_series(1, $1) AS n
) AS rows
"""


def rows(count: int, first: datetime) -> Iterator[Row]:
    for number in range(count):
        due = first + timedelta(seconds=number % 86_400)
        yield f"user-{number}", due, Message(queue="mail", type="birthday", payload=PAYLOAD)


def manager(url: str) -> MessageQueueManager:
    return MessageQueueManager(MemoryBroker(), store=connect(url), settings=Settings(broker_url="memory://"))


async def load(url: str) -> dict[str, float]:
    """Load a campaign, load it again, cancel it."""
    found: dict[str, float] = {}
    async with manager(url) as mq:
        first = utc_now() + timedelta(days=1)
        for word in ("load", "again"):
            began, cpu = perf_counter(), process_time()
            loaded = await mq.scheduler.schedule_many("spring", rows(ROWS, first))
            found[word], found[f"{word} cpu"] = ROWS / (perf_counter() - began), ROWS / (process_time() - cpu)
            assert loaded.added == (ROWS if word == "load" else 0)
        began = perf_counter()
        assert await mq.scheduler.cancel_campaign("spring") == ROWS
        found["cancel"] = ROWS / (perf_counter() - began)
    found["memory"] = getrusage(RUSAGE_SELF).ru_maxrss / 1024
    return found


async def bare_copy(url: str) -> float:
    """Copy rows of that size into a table without indexes: what the server and its client can do at best."""
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE bare (key TEXT, deliver_at TIMESTAMPTZ, envelope BYTEA)")
    body, first = b"x" * 300, utc_now()
    records = [(f"user-{number}", first, body) for number in range(min(ROWS, 200_000))]
    began = perf_counter()
    await connection.copy_records_to_table("bare", records=records)
    took = perf_counter() - began
    await connection.close()
    return len(records) / took


async def send(url: str) -> dict[str, float]:
    """Claim and enqueue what is due within the hour."""
    async with manager(url) as mq:
        await mq.broker.declare(QueueSpec(name="mail"))
        soon = utc_now() + timedelta(minutes=5)
        await mq.scheduler.schedule_many("due", ((key, soon, message) for key, _, message in rows(DUE, soon)))
        began, cpu = perf_counter(), process_time()
        ticked = await mq.scheduler.tick()
        assert ticked.sent == DUE
        return {"send": DUE / (perf_counter() - began), "send cpu": DUE / (process_time() - cpu)}


async def ticks(mq: MessageQueueManager, count: int = 20) -> float:
    """Return the median length of a tick that finds nothing."""
    found = []
    for _ in range(count):
        began = perf_counter()
        await mq.scheduler.tick()
        found.append(perf_counter() - began)
    return statistics.median(found)


async def future(url: str) -> float:
    """Return how much longer a tick takes beside many future schedules than beside few."""
    connection = await asyncpg.connect(url, command_timeout=3_600)
    medians, filled = [], 0
    async with manager(url) as mq:
        for wanted in (FEW, FUTURE):
            while filled < wanted:
                step = min(500_000, wanted - filled)
                await connection.execute(FUTURE_ROWS, step)
                filled += step
            await connection.execute("VACUUM ANALYZE schedule_firings")
            await ticks(mq, 3)
            medians.append(await ticks(mq))
    await connection.close()
    return medians[1] / medians[0]


def results(name: str, loaded: list[dict[str, float]], sent: dict[str, float]) -> list[Result]:
    """Put the numbers of one store together."""

    def rates(word: str) -> list[float]:
        return [one[word] for one in loaded]

    return [
        Result(name=f"{name}: load a campaign", unit="rows/s", repeats=rates("load"), goal=50_000, floor=50_000),
        Result(name=f"{name}: load, per CPU second of the loader", unit="rows/s", repeats=rates("load cpu")),
        Result(name=f"{name}: load it again, nothing new", unit="rows/s", repeats=rates("again")),
        Result(name=f"{name}: cancel it", unit="rows/s", repeats=rates("cancel")),
        Result(name=f"{name}: claim and enqueue", unit="messages/s", repeats=[sent["send"]], goal=10_000),
        Result(name=f"{name}: claim and enqueue, per CPU second", unit="messages/s", repeats=[sent["send cpu"]]),
    ]


def run() -> Report:
    """Measure both stores."""
    with postgres_server(shared_buffers="256MB", **DURABLE) as server:
        durability = postgres_settings(server)
        copies, loaded = [], []
        for _ in range(LOADS):
            with fresh_database(server) as url:
                copies.append(asyncio.run(bare_copy(url)))
                loaded.append(asyncio.run(load(url)))
        with fresh_database(server) as url:
            sent = asyncio.run(send(url))
        with fresh_database(server) as url:
            ratio = asyncio.run(future(url))
    found = results("postgres", loaded, sent)
    against = ratios([one["load"] for one in loaded], copies)
    found.append(Result(name="postgres: load against a bare COPY", unit="ratio", repeats=against))
    found.append(
        Result(
            name=f"postgres: a tick beside {FUTURE:,} future schedules against {FEW:,}",
            unit="ratio",
            repeats=[ratio],
            goal=1.5,
            lower_is_better=True,
        )
    )
    found.append(Result(name="memory of the loader", unit="MB", repeats=[loaded[-1]["memory"]], lower_is_better=True))
    loaded = []
    for _ in range(LOADS):
        with tempfile.TemporaryDirectory() as folder:
            loaded.append(asyncio.run(load(f"sqlite:///{Path(folder) / 'a.db'}")))
            sent = asyncio.run(send(f"sqlite:///{Path(folder) / 'b.db'}"))
    found += results("sqlite", loaded, sent)
    return report("scheduler", {"rows": ROWS, "due": DUE, "future": FUTURE, "PostgreSQL": durability}, found, REMARKS)
