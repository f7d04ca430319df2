"""The long steady run: so many messages a second, 100 consumers, recorder and metrics on; nothing lost, no lag left.

`./dev soak --steady embedded` on one SQLite file, `--steady servers` on private Redis and PostgreSQL servers.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks.effective_postgres import postgres_settings
from benchmarks.results import Report, Result, report
from godwit.brokers.urls import connect
from godwit.core.messages.message import Message
from godwit.core.settings import Settings
from godwit.manager import MessageQueueManager
from godwit.store.urls import connect as connect_store
from tests.servers.postgres import DURABLE, fresh_database, postgres_server
from tests.servers.redis import redis_server
from tests.store.tables import rows

CONSUMERS: Final = 100
TURN_SECONDS: Final = 0.05
LONGEST_LAG_SECONDS: Final = 5.0
DRAIN: Final = timedelta(minutes=5)
ENDED: Final = "SELECT count(*) AS n FROM queue_messages_history WHERE status = 'completed'"
DISTINCT: Final = "SELECT count(DISTINCT message_id) AS n FROM queue_messages_history WHERE status = 'completed'"


class Steady:
    """One run on one pair of broker and store."""

    def __init__(self, broker_url: str, store_url: str, rate: int) -> None:
        self.store_url = store_url
        self.rate = rate
        self.handled: dict[str, int] = {}
        self.published = 0
        self.lags: list[float] = []
        self.mq = MessageQueueManager(
            connect(broker_url, journal_bodies=True),
            store=connect_store(store_url),
            settings=Settings(broker_url=broker_url, store_url=store_url),
        )

        @self.mq.consumer("orders", concurrency=CONSUMERS)
        async def handle(message: Message) -> None:
            self.handled[message.id] = self.handled.get(message.id, 0) + 1
            await asyncio.sleep(0.02)

    async def run(self, minutes: float, console: Console) -> None:
        """Publish steadily, then let everything come to its end."""
        async with self.mq as mq, self._beside():
            until = time.monotonic() + minutes * 60
            began, told = time.monotonic(), 0.0
            while (now := time.monotonic()) < until:
                due = int((now - began) * self.rate) - self.published
                if due > 0:
                    await mq.enqueue_many([Message(queue="orders", payload={"n": n}) for n in range(min(due, 2_000))])
                    self.published += min(due, 2_000)
                self.lags.append(mq.store_services.recorder.lag.seconds)
                if now - told > 10:
                    told = now
                    lag = mq.store_services.recorder.lag
                    console.print(f"{now - began:5.0f} s: {self.published:,} published, {len(self.handled):,} handled, "
                                  f"recorder {lag.rows:,} rows, {lag.seconds:.1f} s behind")  # fmt: skip
                await asyncio.sleep(TURN_SECONDS)
            self.seconds = time.monotonic() - began
            self.last_lag = mq.store_services.recorder.lag.seconds
            await self._drained()
            self.metrics = mq.metrics.render()

    @asynccontextmanager
    async def _beside(self) -> AsyncIterator[None]:
        """Run the worker, the recorder and the rest of the books."""
        worker = self.mq.worker()
        tasks = [asyncio.create_task(worker.run()), asyncio.create_task(self.mq.store_services.run())]
        try:
            yield
        finally:
            worker.stop()
            await tasks[0]
            tasks[1].cancel()
            await asyncio.wait([tasks[1]])

    async def _drained(self) -> None:
        until = time.monotonic() + DRAIN.total_seconds()
        while time.monotonic() < until:
            depth = sum(group.depth for queue in await self.mq.broker.stats() for group in queue.groups)
            if depth == 0:
                await self.mq.status("nobody")  # returns when everything that happened is recorded
                return
            await asyncio.sleep(0.2)

    async def results(self) -> list[Result]:
        """Count what came out at the other end."""
        ((ended,), (distinct,)) = [await rows(self.store_url, query) for query in (ENDED, DISTINCT)]
        once = sum(count == 1 for count in self.handled.values())

        def never(name: str, count: float) -> Result:
            return Result(name=name, unit="messages", repeats=[count], goal=0, floor=0, lower_is_better=True)

        return [
            Result(name="published", unit="messages", repeats=[self.published]),
            Result(name="rate", unit="messages/s", repeats=[self.published / self.seconds], goal=0.95 * self.rate),
            never("not handled", self.published - len(self.handled)),
            never("handled more than once", len(self.handled) - once),
            never("without a completed row in the store", self.published - distinct["n"]),
            never("with more than one", ended["n"] - distinct["n"]),
            Result(
                name="recorder behind when publishing ended",
                unit="s",
                repeats=[self.last_lag],
                goal=LONGEST_LAG_SECONDS,
                floor=LONGEST_LAG_SECONDS,
                lower_is_better=True,
            ),
            Result(name="recorder behind at worst", unit="s", repeats=[max(self.lags)]),
        ]


def soak(where: str, minutes: float, rate: int, console: Console) -> Report:
    """Run it embedded or on private servers, and report."""

    async def run(broker_url: str, store_url: str) -> list[Result]:
        steady = Steady(broker_url, store_url, rate)
        await steady.run(minutes, console)
        return await steady.results()

    if where == "embedded":
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{Path(folder) / 'godwit.db'}"
            results = asyncio.run(run(url, url))
        kept = "one SQLite file"
    else:
        with redis_server() as redis, postgres_server(**DURABLE) as server, fresh_database(server) as store_url:
            results = asyncio.run(run(redis.url, store_url))
            kept = f"Redis (appendonly yes, appendfsync everysec) and PostgreSQL ({postgres_settings(server)})"
    settings = {
        "time": f"{minutes:g} minutes at {rate:,} messages/s",
        "consumers": f"{CONSUMERS} handlers of 20 ms in one process, which also publishes and records",
        "where": kept,
    }
    return report(f"soak_steady_{where}", settings, results)
