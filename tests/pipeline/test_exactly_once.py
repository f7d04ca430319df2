"""Drivers killed with -9 wherever it hurts: the journal, the minutes, the days and the lake agree to the row.

Both tests go on with the same journal, the second where the first one left it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec
import pytest

from godwit.pipeline.jobs.run import RunSettings
from godwit.pipeline.spark.jvm import Jvm
from tests.pipeline.drivers import Driver
from tests.pipeline.journals import WrittenJournal, random_history
from tests.pipeline.oracle import assert_agreement, lake_rows
from tests.servers.postgres import TEMPLATE, PostgresServer, postgres_server

ROWS = int(os.environ.get("GODWIT_SPARK_ROWS", "200000"))
KILLS = int(os.environ.get("GODWIT_SPARK_KILLS", "2"))
BATCHES = 6 + 2 * KILLS
POINTS = ("pipeline.read", "pipeline.prepared:2", "pipeline.publishing", "pipeline.published", "pipeline.acknowledged")
WHOLE = POINTS if os.environ.get("GODWIT_SPARK_WHOLE") else ("pipeline.prepared:2",)
"""Here the driver's JVM and workers are killed with it; at the other points the JVM lives on for the next driver.

A start of a JVM takes most of a driver's time, so it is all points only in the long run.
"""
WITHOUT_A_QUERY = ("pipeline.publishing", "pipeline.acknowledged")
"""Here the driver has no checkpoint and reads batch after batch; at the other points it runs a streaming query."""
CHANCE = Random(7)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A journal, a store whose server is restarted, a lake and a checkpoint."""

    folder: Path
    server: PostgresServer
    settings: RunSettings

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a driver in the lasting JVM: what Spark keeps in its folder is used there after it."""
        own = self.folder / "tmp"
        own.mkdir(exist_ok=True)
        return {"TMPDIR": str(own)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("exactly-once")
    journal = WrittenJournal(folder / "godwit.db")
    journal.declare("orders", "mails", "events")
    journal.append(list(random_history(["orders", "mails", "events"], ROWS, seed=CHANCE.randrange(1_000))))
    # A commit that was confirmed must be there after the server was killed.
    with postgres_server(synchronous_commit="on") as server:
        server.ask(f"CREATE DATABASE pipeline TEMPLATE {TEMPLATE}")
        settings = RunSettings(
            broker_url=journal.url, store_url=server.url("pipeline"), lake=str(folder / "lake"),
            parts=("archive", "analytics"), master="local[2]", once=True, max_rows=ROWS // BATCHES,
            checkpoint=str(folder / "checkpoint"),
        )  # fmt: skip
        yield Place(folder=folder, server=server, settings=settings)


def test_a_driver_killed_at_any_point_of_a_batch_counts_no_row_twice(place: Place, jvm: Jvm) -> None:
    for point in POINTS:
        settings = place.settings
        if point in WITHOUT_A_QUERY:
            settings = msgspec.structs.replace(settings, checkpoint=None)
        if point in WHOLE:
            Driver(settings, fault=point, whole=True).died()
        else:
            Driver(settings, fault=point, jvm=jvm, environment=place.environment).died()
        if point == "pipeline.publishing":
            shutil.rmtree(place.checkpoint)
    store = place.settings.store_url
    assert store is not None
    rows = Counter((shard, seq) for shard, seq, _, _ in lake_rows(store, place.lake))
    assert len(rows) == 3 * (ROWS // BATCHES)  # before the second point, the fourth and the fifth
    assert set(rows.values()) == {1}


def test_whatever_is_killed_lost_or_restored_each_row_counts_once(place: Place, jvm: Jvm) -> None:
    settings, older, go_on = place.settings, place.folder / "older", place.folder / "go on"
    # Held behind its first batch, it believes to be the only one while all the others come and go.
    stale = Driver(msgspec.structs.replace(settings, checkpoint=None), hold=go_on)
    stale.until(1)
    shutil.copytree(place.checkpoint, older)
    for _ in range(KILLS - 1):
        victim = Driver(settings)
        victim.until(1)
        time.sleep(CHANCE.random())
        victim.kill()
    shutil.rmtree(place.checkpoint)
    shutil.copytree(older, place.checkpoint)
    last = Driver(settings, jvm=jvm, environment=place.environment)
    last.until(1)
    place.server.kill()
    place.server.start()
    go_on.touch()
    stale.until(2)
    time.sleep(CHANCE.random())
    stale.kill()
    last.finished()
    assert Driver(settings).end() == 0
    assert settings.store_url is not None
    assert assert_agreement(settings.broker_url, settings.store_url, place.lake) >= ROWS
