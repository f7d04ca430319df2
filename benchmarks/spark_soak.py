"""The long run of the pipeline: `./dev soak --spark [--rows 10000000]`.

First drivers, tasks and stores are killed as the tests do, over five and ten times as many rows, and ten times as many
generated lives and damages are audited. Then journals of
1,000,000 rows and of many times that are followed end to end (lake and analytics, batches of 1,000,000), tables of
200,000 rows and of many times that go through the sink into Redis, and campaigns of 1,000,000 messages and of some
times that are planned again: what a row costs must not grow.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.console import Console

from benchmarks.results import Report, Result, report, save
from benchmarks.spark import CAMPAIGN, HORIZON, send, users
from godwit.core.journal.vocabulary import Event
from godwit.pipeline.jobs.plan import PlanSettings, plan_in_session
from godwit.pipeline.jobs.run import RunSettings, follow
from godwit.pipeline.spark.connections import Connections
from godwit.pipeline.spark.session import spark_session
from tests.pipeline.journals import WrittenJournal, random_history
from tests.servers.postgres import DURABLE, fresh_database, postgres_server
from tests.servers.redis import redis_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    History = list[tuple[str, int, Event, str | None, int | None, list[list[Any]]]]

ROOT: Final = Path(__file__).resolve().parent.parent
BASE: Final = 1_000_000
PIECE: Final = 250_000
WARM_UP: Final = (PIECE, 2 * BASE)
SENT: Final = 200_000
TASK: Final = 50_000
HALF: Final = 2
"""Batches that make at least half a run; fewer say nothing."""
HOURS: Final = 4.0
SECONDS: Final = 3_600
LIVES: Final = 500
KILLING: Final = {
    "GODWIT_AUDIT_LIVES": str(LIVES),
    "GODWIT_SPARK_ROWS": str(BASE),
    "GODWIT_SPARK_SINK_ROWS": "500000",
    "GODWIT_SPARK_KILLS": "10",
    "GODWIT_SPARK_WHOLE": "whole",
    "GODWIT_SPARK_TIMEOUT": str(SECONDS),
}


def kills() -> int:
    """Kill drivers, tasks and stores as the tests do and write down what that was; return pytest's code."""
    tests = [f"tests/pipeline/test_{name}.py" for name in ("audit_lives", "exactly_once", "sink_storm")]
    command = [sys.executable, "-m", "pytest", "-x", *tests]
    ended = subprocess.run(command, cwd=ROOT, env={**os.environ, **KILLING}, check=False, timeout=2 * SECONDS)
    if ended.returncode == 0:
        save(killed(BASE, int(KILLING["GODWIT_SPARK_KILLS"])))
        save(stormed(int(KILLING["GODWIT_SPARK_SINK_ROWS"])))
        save(lived(LIVES))
    return ended.returncode


def killed(rows: int, random_kills: int) -> Report:
    """Return what a run of the kills that ended well has shown; the tests compare every row with an oracle."""
    settings = {
        "test": "tests/pipeline/test_exactly_once.py; SQLite journal, PostgreSQL store, lake, local[2]",
        "named kills": "a driver with its JVM and workers at each of the five points of a batch",
        "besides": "checkpoint deleted, older checkpoint restored, store killed and restarted, a second driver",
    }
    results = [
        Result(name="rows in the journal", unit="rows", repeats=[rows]),
        Result(name="drivers killed at random with their JVM and workers", unit="kills", repeats=[random_kills]),
        Result(
            name="rows missing or doubled in minutes, days, histograms and lake", unit="rows", repeats=[0], goal=0,
            floor=0, lower_is_better=True,
        ),
    ]  # fmt: skip
    return report("spark_kills", settings, results)


def stormed(rows: int) -> Report:
    """Return what a storm over the sink that ended well has shown; the test counts every message in the journal."""
    settings = {
        "test": "tests/pipeline/test_sink_storm.py; a table of 10 parts into SQLite, local[2]",
        "kills": "a fifth of all blocks of 2,000 rows kill the process that sent them, before it is written down",
        "besides": "the driver killed with -9 behind a fifth of the rows and started again; a dedup window of 1 ms",
    }
    results = [
        Result(name="rows of the table", unit="rows", repeats=[rows]),
        Result(
            name="rows missing or sent twice", unit="rows", repeats=[0], goal=0, floor=0, lower_is_better=True
        ),
    ]  # fmt: skip
    return report("spark_storm", settings, results)


def lived(lives: int) -> Report:
    """Return what an audit of generated lives and damages that ended well has shown; the test names every case."""

    def never(name: str) -> Result:
        return Result(name=name, unit="cases", repeats=[0], goal=0, floor=0, lower_is_better=True)

    settings = {
        "test": "tests/pipeline/test_audit_lives.py; lives of the memory broker in three acts, audited after each",
        "damages": "thirteen kinds, from one lost copy to a restored backup; a third of the lives have gaps as well",
    }
    results = [
        Result(name="healthy lives", unit="cases", repeats=[lives]),
        Result(name="damaged lives", unit="cases", repeats=[lives]),
        never("healthy lives with a finding or an unknown span of rows that were read"),
        never("damages neither found nor covered by an unknown span"),
    ]
    return report("spark_lives", settings, results)


def growth(rows: int, console: Console) -> Report:
    """Follow a small and a large journal; say what a row costs in each."""
    with (
        tempfile.TemporaryDirectory(prefix="godwit-soak-") as folder,
        spark_session("soak", master="local[2]", lasting=True) as spark,
    ):
        history = list(random_history(["orders"], PIECE, seed=1, hours=HOURS))
        rates: dict[int, float] = {}
        halves: list[float] = []
        # What is followed first only warms the JVM up.
        for number, size in enumerate((*WARM_UP, BASE, rows)):
            place = Path(folder) / str(number)
            place.mkdir()
            rates[size], halves = _followed(spark, place, size, history)
            shutil.rmtree(place)
            console.print(f"{size:,} rows: {rates[size]:,.0f} rows/s")
        sent = [*_sent(spark, rows // 5, console), *_planned_again(spark, Path(folder), rows // 2, console)]
    results = [
        *(Result(name=f"followed, {size:,} rows", unit="rows/s", repeats=[rates[size]]) for size in (BASE, rows)),
        _flat(f"rate at {rows:,} rows against {BASE:,}", rates[rows] / rates[BASE]),
        *sent,
    ]
    if len(halves) > 1:
        late = Result(
            name=f"second half of {rows:,} rows against the first", unit="ratio", repeats=[halves[0] / halves[1]]
        )
        results.append(late)
    settings = {
        "spark": "local[2], batches of 1,000,000 rows, lake and analytics, SQLite as broker and store",
        "sink": f"tasks of {TASK:,} rows of a key and a payload, Redis with its append-only file",
        "plan": "birthdays of a week, planned a second time with nothing changed, PostgreSQL with its own durability",
    }
    return report("spark_soak", settings, results)


def _sent(spark: SparkSession, rows: int, console: Console) -> list[Result]:
    """Send a small and a large table through the sink, in tasks of the same size, each to a server of its own."""
    small, rates = SENT, dict[int, float]()
    for size in (small, small, rows):  # the first only warms up
        with redis_server() as server:
            rates[size] = send(spark, server.url, f"soak-{size}", size, size // TASK)
        console.print(f"{size:,} rows sent: {rates[size]:,.0f} rows/s")
    return [
        *(Result(name=f"sent to Redis, {size:,} rows", unit="rows/s", repeats=[rates[size]]) for size in (small, rows)),
        _flat(f"rate of the sink at {rows:,} rows against {small:,}", rates[rows] / rates[small]),
    ]


def _planned_again(spark: SparkSession, folder: Path, messages: int, console: Console) -> list[Result]:
    """Plan a small and a large campaign twice, and measure the second time."""
    rates = dict[int, float]()
    with postgres_server(**DURABLE) as server, fresh_database(server) as store:
        for size in (BASE, messages):
            place = str(folder / f"users{size}.parquet")
            users(spark, 2 * size).write.parquet(place)
            campaign = msgspec.structs.replace(CAMPAIGN, name=f"birthdays-{size}")
            settings = PlanSettings(campaign=campaign, horizon=HORIZON, users=place, store_url=store)
            plan_in_session(spark, settings)
            began = time.perf_counter()
            rates[size] = plan_in_session(spark, settings).planned / (time.perf_counter() - began)
            console.print(f"{size:,} messages planned again: {rates[size]:,.0f} messages/s")
    sizes = (BASE, messages)
    return [
        *(Result(name=f"planned again, {size:,} messages", unit="messages/s", repeats=[rates[size]]) for size in sizes),
        _flat(f"rate of planning again at {messages:,} messages against {BASE:,}", rates[messages] / rates[BASE]),
    ]


def _flat(name: str, ratio: float) -> Result:
    return Result(name=name, unit="ratio", repeats=[ratio], goal=0.9, floor=0.8)


def _followed(spark: SparkSession, place: Path, rows: int, history: History) -> tuple[float, list[float]]:
    """Follow a journal that repeats a history over and over, each time some hours later.

    Return the rows a second, and the seconds of the first and of the second half of the batches.
    """
    journal = WrittenJournal(place / "godwit.db")
    journal.declare("orders")
    for piece in range(rows // PIECE):
        later = int(piece * HOURS * 3_600_000)
        journal.append(
            [(queue, at_ms + later, event, group, depth, chunk) for queue, at_ms, event, group, depth, chunk in history]
        )
    settings = RunSettings(
        broker_url=journal.url, store_url=journal.url, lake=str(place / "lake"), parts=("archive", "analytics"),
        once=True,
    )  # fmt: skip
    with Connections(journal.url, journal.url) as connections:
        ticks = [time.perf_counter()]
        follow(spark, connections, settings, lambda _outcome: ticks.append(time.perf_counter()))
        ended = time.perf_counter()
    half = (len(ticks) - 1) // 2
    halves = [ticks[half] - ticks[0], ticks[2 * half] - ticks[half]] if half >= HALF else []
    return rows / (ended - ticks[0]), halves
