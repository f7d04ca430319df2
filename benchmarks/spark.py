"""The journal through Spark: source, analytics and sink on local[2], beside a bare loop over the same chunks.

The bare loop reads and decodes in two processes and throws the rows away: what Python can do at best. A session is
started once; each measure runs once before it counts, because a JVM is slow at first.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.results import Report, Result, interleaved, report
from godwit.brokers.urls import connect
from godwit.core.envelope import seal_all
from godwit.core.journal import decode_chunk
from godwit.core.message import Message
from godwit.core.queues import QueueSpec
from godwit.pipeline.connections import Connections
from godwit.pipeline.jobs.run import RunSettings, follow
from godwit.pipeline.offsets import Range, split
from godwit.pipeline.reading import OpenBroker, chunks_of
from godwit.pipeline.session import spark_session
from tests.pipeline.making import WrittenJournal, random_history
from tests.servers.postgres import fresh_database
from tests.servers.redis import redis_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = 1_000_000
REDIS_ROWS: Final = 400_000
SINK_ROWS: Final = 200_000
REPEATS: Final = 3
MASTER: Final = "local[2]"
_processes = multiprocessing.get_context("forkserver")


def run() -> Report:
    """Measure everything."""
    began = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="godwit-bench-") as folder,
        redis_server() as redis,
        fresh_database() as store,
        spark_session("benchmark", master=MASTER) as spark,
    ):
        start_seconds = time.perf_counter() - began
        hundred, single = _written(Path(folder) / "hundred.db", 100), _written(Path(folder) / "single.db", 1)
        asyncio.run(_filled(redis.url))
        places = {"SQLite, chunks of 100": hundred, "SQLite, chunks of 1": single, "Redis, chunks of 100": redis.url}
        results = [
            Result(name="session start", unit="s", repeats=[start_seconds], goal=10, floor=10, lower_is_better=True)
        ]
        for name, url in places.items():
            results += _sources(spark, name, url, floor=0.2 if name.endswith("of 1") else 0.5)
        results.append(_analytics(spark, hundred, store, Path(folder)))
        results.append(_sink(spark, redis.url))
    settings = {
        "rows": f"{ROWS:,} in SQLite, {REDIS_ROWS:,} in Redis, {SINK_ROWS:,} through the sink",
        "spark": f"{MASTER}, all columns, rowsPerPartition 50,000",
        "bare loop": "two processes, journal.read and decode_chunk, rows thrown away",
    }
    return report("spark", settings, results)


def _written(path: Path, chunk_rows: int) -> str:
    journal = WrittenJournal(path)
    journal.declare("orders")
    journal.append(list(random_history(["orders"], ROWS, seed=1, chunk_rows=chunk_rows)))
    return journal.url


async def _filled(url: str) -> None:
    async with connect(url) as broker:
        await broker.declare(QueueSpec(name="orders", max_size=10 * (REDIS_ROWS + SINK_ROWS)))
        for start in range(0, REDIS_ROWS, 100):
            messages = [Message(queue="orders", payload={"n": start + number}) for number in range(100)]
            await broker.publish(seal_all(messages))


def _whole(url: str) -> Range:
    with OpenBroker(url) as opened:
        ((shard, ends),) = opened.ask(lambda journal: journal.shards()).items()
    return Range(shard, ends.epoch, ends.first_seq - 1, ends.last_seq)


def bare(url: str, part: Range) -> None:
    """Read and decode a range."""
    after = part.after
    with OpenBroker(url) as opened:
        while after < part.until:
            for chunk in chunks_of(opened, part, after):
                after = decode_chunk(chunk).last_seq


def _sources(spark: SparkSession, name: str, url: str, *, floor: float) -> list[Result]:
    whole = _whole(url)
    halves = list(split(whole, -(-whole.rows // 2)))

    def loop() -> float:
        began = time.perf_counter()
        workers = [_processes.Process(target=bare, args=(url, half)) for half in halves]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return whole.rows / (time.perf_counter() - began)

    def source() -> float:
        began = time.perf_counter()
        spark.read.format("godwit").option("url", url).load().write.format("noop").mode("overwrite").save()
        return whole.rows / (time.perf_counter() - began)

    source()
    loop()
    found = interleaved({"source": source, "loop": loop}, REPEATS)
    ratios = [one / other for one, other in zip(found["source"], found["loop"], strict=True)]
    return [
        Result(name=f"bare loop, {name}", unit="rows/s", repeats=found["loop"]),
        Result(name=f"source to noop, {name}", unit="rows/s", repeats=found["source"]),
        Result(name=f"source against the bare loop, {name}", unit="ratio", repeats=ratios, goal=0.7, floor=floor),
    ]


def _analytics(spark: SparkSession, url: str, store: str, folder: Path) -> Result:
    rates = []
    for number in range(REPEATS + 1):
        # Another store each time: the rows count once in each.
        place = store if number == 0 else f"sqlite:///{folder}/store{number}.db"
        settings = RunSettings(
            broker_url=url, store_url=place, lake=str(folder / "lake"), parts=("analytics",), once=True
        )
        with Connections(url, place) as connections:
            began = time.perf_counter()
            follow(spark, connections, settings, lambda _outcome: None)
            rates.append(ROWS / (time.perf_counter() - began))
    return Result(
        name="analytics end to end, SQLite to SQLite", unit="rows/s", repeats=rates[1:], goal=300_000, floor=200_000
    )


def _sink(spark: SparkSession, url: str) -> Result:
    from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

    def send(name: str, rows: int) -> float:
        table = spark.range(0, rows, 1, 4).select(
            F.col("id").cast("string").alias("key"), F.to_json(F.struct(F.col("id").alias("n"))).alias("payload")
        )
        began = time.perf_counter()
        table.write.format("godwit").mode("append").options(url=url, queue="orders", runId=name).save()
        return rows / (time.perf_counter() - began)

    send("warm-up", 2_000)
    rates = [send(f"run-{number}", SINK_ROWS) for number in range(REPEATS)]
    return Result(name="sink into Redis", unit="rows/s", repeats=rates, goal=80_000, floor=80_000)
