"""The recorder on PostgreSQL against a bare COPY of the rows it writes, and on SQLite; in the same run."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import asyncpg

from benchmarks.effective_postgres import postgres_settings
from benchmarks.results import REPEATS, Report, Result, ratios, report
from godwit.brokers.contract import Ack, Delivery
from godwit.brokers.memory import MemoryBroker
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.queues import JournalBody, QueueSpec
from godwit.runtime.recorder.recorder import Recorder
from godwit.store.contract import Store
from godwit.store.postgres.record import prepare
from godwit.store.urls import connect
from tests.servers.postgres import DURABLE, PostgresServer, fresh_database, postgres_server

MESSAGES: Final = 20_000
BATCH: Final = 100
LEASE: Final = timedelta(minutes=5)
PAYLOAD: Final = {"order": 7, "customer": "somebody", "lines": [{"article": "a-17", "count": 3}] * 3}
Copied = list[tuple[str, list[str], list[tuple[Any, ...]]]]


async def life(broker: MemoryBroker, name: str) -> None:
    """Publish, deliver and ack messages: three transitions each."""
    for start in range(0, MESSAGES, BATCH):
        await _publish(broker, name, start)
        held = await _pull(broker)
        await broker.settle([Ack(delivery.ack_id, run_ms=3) for delivery in held])


async def _publish(broker: MemoryBroker, name: str, start: int) -> None:
    messages = [Message(id=f"{name}-{start + n}", queue="orders", payload=PAYLOAD) for n in range(BATCH)]
    await broker.publish([seal(message) for message in messages])


async def _pull(broker: MemoryBroker) -> list[Delivery]:
    return await broker.pull("orders", "default", worker="w1", limit=BATCH, lease=LEASE)


async def slow_life(broker: MemoryBroker, name: str) -> AsyncIterator[None]:
    """Let each of the three transitions of 1,000 messages fall into a batch of its own."""
    for first in range(0, MESSAGES // 2, 1_000):
        for start in range(first, first + 1_000, BATCH):
            await _publish(broker, name, start)
        yield
        held = [delivery for _ in range(1_000 // BATCH) for delivery in await _pull(broker)]
        yield
        await broker.settle([Ack(delivery.ack_id, run_ms=3) for delivery in held])
        yield


async def broker_with_queue() -> MemoryBroker:
    """Return a broker whose journal keeps whole messages."""
    broker = MemoryBroker()
    await broker.declare(QueueSpec(name="orders", journal_body=JournalBody.ON, max_delayed=None))
    return broker


@contextmanager
def overheard() -> Iterator[Copied]:
    """Note every COPY, so that it can be done again alone."""
    heard: Copied = []
    real = asyncpg.Connection.copy_records_to_table

    async def copy(self: Any, table: str, *, records: list[tuple[Any, ...]], columns: list[str]) -> Any:
        heard.append((table, columns, records))
        return await real(self, table, records=records, columns=columns)

    asyncpg.Connection.copy_records_to_table = copy
    try:
        yield heard
    finally:
        asyncpg.Connection.copy_records_to_table = real


async def bare_copy(url: str, copied: Copied) -> float:
    """Return the seconds that the COPYs alone take, each committed, into the same empty tables."""
    connection = await asyncpg.connect(url)
    try:
        await prepare(connection)
        for table in ("queue_messages_history", "queue_deliveries_history"):
            for day in range(-1, 2):
                await connection.execute(f"SELECT godwit_ensure_day('{table}', current_date + {day})")
        started = perf_counter()
        for table, columns, records in copied:
            await connection.copy_records_to_table(table, records=records, columns=columns)
        return perf_counter() - started
    finally:
        await connection.close()


@asynccontextmanager
async def postgres_store(server: PostgresServer) -> AsyncIterator[tuple[Store, str]]:
    """Open a store on a fresh database, connected."""
    with fresh_database(server) as url:
        async with connect(url) as store:
            await store.messages.positions()
            yield store, url


async def timed(broker: MemoryBroker, store: Store) -> float:
    """Return the transitions per second of catching up with a journal."""
    recorder = Recorder(broker.journal, store.messages)
    started = perf_counter()
    await recorder.catch_up()
    return recorder.recorded / (perf_counter() - started)


async def measure(server: PostgresServer, number: int) -> dict[str, float]:
    """Measure everything once."""
    found: dict[str, float] = {}
    broker = await broker_with_queue()
    await life(broker, f"quick{number}")
    async with postgres_store(server) as (store, _):
        with overheard() as copied:
            rate = await timed(broker, store)
    with fresh_database(server) as other:
        copy_seconds = await bare_copy(other, copied)
    found["catching up"] = rate
    found["copy"] = 3 * MESSAGES / copy_seconds
    async with postgres_store(server) as (store, _):
        found["spread"] = await _spread(store, number)
    with tempfile.TemporaryDirectory() as folder:
        async with connect(f"sqlite:///{Path(folder) / 'store.db'}") as store:
            await store.ping()
            found["sqlite"] = await timed(broker, store)
    return found


async def _spread(store: Store, number: int) -> float:
    broker = await broker_with_queue()
    recorder = Recorder(broker.journal, store.messages)
    seconds = 0.0
    async for _ in slow_life(broker, f"slow{number}"):
        started = perf_counter()
        await recorder.tick()
        seconds += perf_counter() - started
    return recorder.recorded / seconds


async def _measured(server: PostgresServer, repeats: int) -> dict[str, list[float]]:
    rounds = [await measure(server, number) for number in range(repeats)]
    return {name: [found[name] for found in rounds] for name in rounds[0]}


def run(repeats: int = REPEATS) -> Report:
    """Measure on a private server."""
    with postgres_server(**DURABLE) as server:
        durability = postgres_settings(server)
        found = asyncio.run(_measured(server, repeats))
    results = [
        Result(
            name="PostgreSQL, catching up",
            unit="transitions/s",
            repeats=found["catching up"],
            goal=20_000,
            floor=20_000,
        ),
        Result(
            name="PostgreSQL, catching up / bare COPY of the coalesced rows",
            unit="ratio",
            repeats=ratios(found["catching up"], found["copy"]),
            goal=0.3,
            floor=0.3,
        ),
        Result(name="PostgreSQL, every transition in its own batch", unit="transitions/s", repeats=found["spread"]),
        Result(name="SQLite, catching up", unit="transitions/s", repeats=found["sqlite"]),
    ]
    settings = {
        "messages": MESSAGES,
        "transitions": "enqueued, delivered, acked; whole messages in the journal",
        "PostgreSQL": f"private server, {durability}, default indexes",
    }
    return report("recorder", settings, results)
