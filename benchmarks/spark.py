"""The journal through Spark: source, analytics, audit, sink and plan on local[2].

From SQLite the source is measured beside batches that are ready, from Redis beside a bare loop over the chunks, which
reads and decodes in two processes that are running already and throws the rows away. A session is started once; each
measure runs a few times before it counts, because a JVM is slow at first.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from benchmarks.effective_postgres import postgres_settings
from benchmarks.ready_made import FORMAT, ReadyMade, made
from benchmarks.results import FOLDER, Report, Result, interleaved, ratios, report
from godwit.brokers.urls import connect
from godwit.core.journal.chunks import decode_chunk
from godwit.core.messages.envelope import seal_all
from godwit.core.messages.message import Message
from godwit.core.queues import QueueSpec
from godwit.pipeline.campaign.definition import Campaign, Horizon
from godwit.pipeline.jobs.plan import PlanSettings, plan_in_session
from godwit.pipeline.jobs.run import RunSettings, follow
from godwit.pipeline.source.offsets import RowRange, split
from godwit.pipeline.source.reader import read_chunks
from godwit.pipeline.source.schema import columns
from godwit.pipeline.spark.connections import Connections
from godwit.pipeline.spark.session import spark_session
from godwit.pipeline.spark.sync_broker import SyncBroker
from godwit.pipeline.transforms.plan import plan_candidates, plan_messages
from tests.pipeline.journals import WrittenJournal, copy_histories, random_history
from tests.servers.postgres import DURABLE, fresh_database, postgres_server
from tests.servers.redis import redis_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

ZONES: Final = (
    "UTC", "Europe/London", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/Los_Angeles",
    "Asia/Tokyo", "Asia/Kolkata", "Africa/Nairobi", "Australia/Sydney", "Pacific/Auckland", "Asia/Dubai",
)  # fmt: skip
SOME: Final = (
    "seq", "epoch", "shard", "at", "event", "queue", "group", "message_id", "publish_seq", "attempt", "wait_ms",
    "run_ms",
)  # fmt: skip
ROWS: Final = 1_000_000
HOURS: Final = 1 / 6
REDIS_ROWS: Final = 1_000_000
SINK_ROWS: Final = 200_000
USERS: Final = 2_000_000
STORED_USERS: Final = 2_000_000
REPEATS: Final = 3
MASTER: Final = "local[2]"
WHY_READY_MADE: Final = (
    "Ready-made batches are the same rows as Arrow batches that lie in files: what Spark itself can take from a source"
    " in Python. [Decision 0075](decisions/0075-spark-source-cost-of-a-row-and-the-limit-of-python-sources.md)"
    " has the costs of each step."
)
CAMPAIGN: Final = Campaign(
    name="birthdays", queue="birthdays", type="birthday", date_column="born", local_time=dt.time(9)
)
HORIZON: Final = Horizon.from_days(dt.date(2026, 5, 1))
WARM_UP: Final = 3
LOOP_SECONDS: Final = 120
LOOPS: Final = 2
"""How often the bare loop reads everything: once takes a few tenths of a second."""


def run() -> Report:
    """Measure everything, or the parts that GODWIT_SPARK_PARTS names; the others stay as they were measured last."""
    wanted = os.environ.get("GODWIT_SPARK_PARTS", "").split(",") if "GODWIT_SPARK_PARTS" in os.environ else list(PARTS)
    with tempfile.TemporaryDirectory(prefix="godwit-bench-") as folder, ExitStack() as stack:
        began = time.perf_counter()
        spark = stack.enter_context(spark_session("benchmark", master=MASTER, lasting=True))
        results = [_start(time.perf_counter() - began)]
        place = Place(spark, Path(folder), stack)
        for part in wanted:
            for found in PARTS[part](place):
                print(f"{found.name}: {found.median:,.3g} {found.unit} {found.verdict}", flush=True)
                results.append(found)
    settings = {
        "rows": f"{ROWS:,} of ten minutes in SQLite, {REDIS_ROWS:,} in Redis, {SINK_ROWS:,} through the sink;"
        f" audits in batches of {ROWS:,}",
        "users": f"{USERS:,} to Parquet, {STORED_USERS:,} to PostgreSQL, half of them within the week that is planned",
        "postgres": place.durability or _before().get("postgres"),
        "spark": f"{MASTER}, all columns, a task for up to 262,144 rows",
        "bare loop": "two processes that are running, journal.read and decode_chunk, rows thrown away",
    }
    return report("spark", settings, _with_the_others(results), [WHY_READY_MADE])


def _before() -> dict[str, object]:
    """Return the settings of what was measured last."""
    file = FOLDER / "spark.json"
    return msgspec.json.decode(file.read_bytes(), type=Report).settings if file.exists() else {}


def _with_the_others(results: list[Result]) -> list[Result]:
    """Put the results of parts that were not measured now beside those that were."""
    before = FOLDER / "spark.json"
    kept = msgspec.json.decode(before.read_bytes(), type=Report).results if before.exists() else []
    measured = {one.name: one for one in results}
    names = dict.fromkeys([*(one.name for one in kept), *measured])
    old = {one.name: one for one in kept}
    return [measured.get(name) or old[name] for name in names]


class Place:
    """A session, a folder, and the servers a part asks for."""

    def __init__(self, spark: SparkSession, folder: Path, stack: ExitStack) -> None:
        self.spark, self.folder, self._stack = spark, folder, stack
        self.durability: str | None = None

    @cached_property
    def hundred(self) -> str:
        """A journal in chunks of 100."""
        return _written(self.folder / "hundred.db", 100)

    @cached_property
    def redis(self) -> str:
        """A Redis server with a journal in chunks of 100."""
        url = self._stack.enter_context(redis_server()).url
        asyncio.run(_filled(url))
        return url

    @cached_property
    def store(self) -> str:
        """A PostgreSQL database that keeps what it confirmed, as users have it."""
        server = self._stack.enter_context(postgres_server(**DURABLE))
        self.durability = postgres_settings(server)
        return self._stack.enter_context(fresh_database(server))


def _start(seconds: float) -> Result:
    return Result(name="session start", unit="s", repeats=[seconds], goal=10, floor=10, lower_is_better=True)


def _written(path: Path, chunk_rows: int) -> str:
    journal = WrittenJournal(path)
    journal.declare("orders")
    journal.append(list(random_history(["orders"], ROWS, seed=1, chunk_rows=chunk_rows, hours=HOURS)))
    return journal.url


async def _filled(url: str) -> None:
    async with connect(url) as broker:
        await broker.declare(QueueSpec(name="orders", max_size=10 * REDIS_ROWS))
        for start in range(0, REDIS_ROWS, 100):
            messages = [Message(queue="orders", payload={"n": start + number}) for number in range(100)]
            await broker.publish(seal_all(messages))


def _whole(url: str) -> RowRange:
    with SyncBroker(url) as opened:
        ((shard, ends),) = opened.ask(lambda journal: journal.shards()).items()
    return RowRange(shard, ends.epoch, ends.first_seq - 1, ends.last_seq)


def bare(url: str, part: RowRange) -> None:
    """Read and decode a range."""
    after = part.after
    with SyncBroker(url) as opened:
        while after < part.until:
            for chunk in read_chunks(opened, part, after):
                after = decode_chunk(chunk).last_seq


def _source(spark: SparkSession, url: str, wanted: Sequence[str] = ()) -> Callable[[], float]:
    """Give one read of a whole journal, with all columns, which is what is asked for, or with some; it is warm."""
    whole, reader = _whole(url), spark.read.format("godwit").option("url", url)
    if wanted:
        reader = reader.schema(columns(*wanted))

    def source() -> float:
        began = time.perf_counter()
        reader.load().write.format("noop").mode("overwrite").save()
        return whole.rows / (time.perf_counter() - began)

    for _ in range(WARM_UP):
        source()
    return source


@contextmanager
def _loop(url: str, whole: RowRange) -> Iterator[Callable[[], float]]:
    """Give the bare loop, in two processes that have run it once."""
    halves = list(split(whole, -(-whole.rows // 2)))

    def loop() -> float:
        began = time.perf_counter()
        for _ in range(LOOPS):
            for one in [pool.submit(bare, url, half) for half in halves]:
                one.result(LOOP_SECONDS)
        return LOOPS * whole.rows / (time.perf_counter() - began)

    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("forkserver")) as pool:
        loop()
        yield loop


def _ready_made(place: Place, url: str) -> Callable[[], float]:
    """Give batches of the same rows that are ready: no source in Python can give more."""
    spark, whole = place.spark, _whole(url)
    files = made(url, whole, place.folder)
    spark.dataSource.register(ReadyMade)

    def ready() -> float:
        began = time.perf_counter()
        spark.read.format(FORMAT).option("files", files).load().write.format("noop").mode("overwrite").save()
        return whole.rows / (time.perf_counter() - began)

    for _ in range(WARM_UP):
        ready()
    return ready


def _from_sqlite(place: Place) -> list[Result]:
    """Measure the source beside ready-made batches, then chunks of one row each, then a few columns."""
    spark, name, url = place.spark, "SQLite, chunks of 100", place.hundred
    found = interleaved({"source": _source(spark, url), "ready": _ready_made(place, url)}, REPEATS)
    hundreds = Result(name=f"source to noop, {name}", unit="rows/s", repeats=found["source"])
    results = [
        hundreds,
        Result(name=f"ready-made batches through Spark, {name}", unit="rows/s", repeats=found["ready"]),
        Result(
            name="source, all columns, against ready-made batches handed to Spark", unit="ratio",
            repeats=ratios(found["source"], found["ready"]), goal=0.75, floor=0.6,
        ),
    ]  # fmt: skip
    singles = _repeated(_source(spark, _written(place.folder / "single.db", 1)), "SQLite, chunks of 1")
    ratio = Result(
        name="source, chunks of 1 against chunks of 100", unit="ratio", repeats=[singles.median / hundreds.median],
        goal=0.4, floor=0.4,
    )  # fmt: skip
    some = [
        _repeated(_source(spark, url, wanted), f"{name}, {len(wanted)} of 40 columns") for wanted in (SOME, SOME[:1])
    ]
    return [*results, singles, ratio, *some]


def _repeated(source: Callable[[], float], name: str) -> Result:
    return Result(name=f"source to noop, {name}", unit="rows/s", repeats=[source() for _ in range(REPEATS)])


def _from_redis(place: Place) -> list[Result]:
    """Measure the source beside the bare loop, which from Redis is no faster than the server."""
    name, source = "Redis, chunks of 100", _source(place.spark, place.redis)
    with _loop(place.redis, _whole(place.redis)) as loop:
        found = interleaved({"source": source, "loop": loop}, REPEATS)
    against = ratios(found["source"], found["loop"])
    return [
        Result(name=f"bare loop, {name}", unit="rows/s", repeats=found["loop"]),
        Result(name=f"source to noop, {name}", unit="rows/s", repeats=found["source"]),
        Result(name=f"source against the bare loop, {name}", unit="ratio", repeats=against, goal=0.7, floor=0.5),
    ]


def _analytics(place: Place) -> list[Result]:
    spark, url, folder = place.spark, place.hundred, place.folder
    rates = []
    for number in range(REPEATS + 1):
        # Another store each time: the rows count once in each.
        store = f"sqlite:///{folder}/store{number}.db"
        settings = RunSettings(
            broker_url=url, store_url=store, lake=str(folder / "lake"), parts=("analytics",), once=True
        )
        with Connections(url, store) as connections:
            began = time.perf_counter()
            follow(spark, connections, settings, lambda _outcome: None)
            rates.append(ROWS / (time.perf_counter() - began))
    return [
        Result(
            name="analytics end to end, SQLite to SQLite", unit="rows/s", repeats=rates[1:], goal=300_000, floor=200_000
        )
    ]


def _audit(place: Place) -> list[Result]:
    """Measure the audit of a journal in which everything is done soon, and of one with a long queue before it."""
    return [
        Result(name=f"audit end to end, {waiting:,} waiting", unit="rows/s", repeats=_audited(place, waiting))
        for waiting in (1_000, 200_000)
    ]


def _audited(place: Place, waiting: int) -> list[float]:
    journal = WrittenJournal(place.folder / f"lives{waiting}.db")
    journal.declare("orders")
    journal.append(list(copy_histories("orders", (WARM_UP + REPEATS) * ROWS, waiting=waiting)))
    store = f"sqlite:///{place.folder}/audited{waiting}.db"
    settings = RunSettings(
        broker_url=journal.url, store_url=store, lake=str(place.folder / f"audited{waiting}"), parts=("audit",),
        once=True, max_rows=ROWS,
    )  # fmt: skip
    with Connections(journal.url, store) as connections:
        ticks = [time.perf_counter()]
        follow(place.spark, connections, settings, lambda _outcome: ticks.append(time.perf_counter()))
    return [ROWS / (end - begin) for begin, end in pairwise(ticks[WARM_UP : WARM_UP + REPEATS + 1])]


def _sink(place: Place) -> list[Result]:
    with redis_server() as server:
        send(place.spark, server.url, "warm-up", SINK_ROWS // 4)
        rates = [send(place.spark, server.url, f"run-{number}", SINK_ROWS) for number in range(REPEATS)]
    return [Result(name="sink into Redis", unit="rows/s", repeats=rates, goal=80_000, floor=80_000)]


def send(spark: SparkSession, url: str, name: str, rows: int, tasks: int = 4) -> float:
    """Write a table to a queue; return how many rows a second that were."""
    from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

    asyncio.run(_declared(url))
    table = spark.range(0, rows, 1, tasks).select(
        F.col("id").cast("string").alias("key"), F.to_json(F.struct(F.col("id").alias("n"))).alias("payload")
    )
    began = time.perf_counter()
    table.write.format("godwit").mode("append").options(url=url, queue="orders", runId=name).save()
    return rows / (time.perf_counter() - began)


async def _declared(url: str) -> None:
    async with connect(url) as broker:
        await broker.declare(QueueSpec(name="orders", max_size=100 * SINK_ROWS))


def _plans(place: Place) -> list[Result]:
    """Plan birthdays of a week: users to Parquet, and their messages into PostgreSQL."""
    spark, store, folder = place.spark, place.store, place.folder
    everybody, fewer = str(folder / "users.parquet"), str(folder / "fewer.parquet")
    users(spark, USERS).write.parquet(everybody)
    users(spark, STORED_USERS).write.parquet(fewer)
    campaign, horizon = CAMPAIGN, HORIZON

    def to_parquet(number: int) -> float:
        began = time.perf_counter()
        plan_messages(plan_candidates(spark.read.parquet(everybody), campaign), campaign, horizon).write.parquet(
            str(folder / f"plan{number}")
        )
        return USERS / (time.perf_counter() - began)

    def to_store(number: int) -> tuple[int, float]:
        each = msgspec.structs.replace(campaign, name=f"birthdays-{number}")
        settings = PlanSettings(campaign=each, horizon=horizon, users=fewer, store_url=store)
        began = time.perf_counter()
        found = plan_in_session(spark, settings)
        return found.planned, time.perf_counter() - began

    files = [to_parquet(number) for number in range(WARM_UP + REPEATS)][WARM_UP:]
    stored = [to_store(number) for number in range(REPEATS + 1)][1:]
    again = [to_store(REPEATS) for _ in range(REPEATS)]
    return [
        Result(name="plan to Parquet", unit="users/s", repeats=files, goal=500_000, floor=500_000),
        Result(
            name="plan into PostgreSQL", unit="messages/s", repeats=[messages / took for messages, took in stored],
            goal=100_000, floor=100_000,
        ),
        Result(name="plan into PostgreSQL, users", unit="users/s", repeats=[STORED_USERS / took for _, took in stored]),
        Result(
            name="plan into PostgreSQL, the same once more", unit="messages/s",
            repeats=[messages / took for messages, took in again],
        ),
    ]  # fmt: skip


def users(spark: SparkSession, count: int) -> DataFrame:
    """Return users of a dozen zones; half of them have their birthday within the week that is planned."""
    from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

    zones = F.array(*(F.lit(zone) for zone in ZONES))
    number = F.col("id")
    soon = F.concat(F.lit("1990-05-0"), (1 + number % 7).cast("string"))
    return spark.range(0, count, 1, 4).select(
        number.cast("string").alias("user_id"),
        F.element_at(zones, (1 + number % len(ZONES)).cast("int")).alias("timezone"),
        F.when(number % 2 == 0, soon).otherwise(F.lit("1990-11-05")).alias("born"),
    )


PARTS: Final = {
    "sqlite": _from_sqlite, "redis": _from_redis, "analytics": _analytics, "audit": _audit, "sink": _sink,
    "plan": _plans,
}  # fmt: skip
