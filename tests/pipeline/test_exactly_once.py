"""Drivers killed with -9 wherever it hurts: the journal, the minutes, the days and the lake agree to the row."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from random import Random

import msgspec
import pytest

from godwit.pipeline.gateway import Jvm
from godwit.pipeline.jobs.run import RunSettings
from tests.pipeline.conftest import TIMEOUT_SECONDS
from tests.pipeline.drivers import Driver
from tests.pipeline.making import WrittenJournal, random_history
from tests.pipeline.oracle import assert_agreement
from tests.servers.postgres import TEMPLATE, postgres_server

ROWS = int(os.environ.get("GODWIT_SPARK_ROWS", "200000"))
KILLS = int(os.environ.get("GODWIT_SPARK_KILLS", "1"))
BATCHES = 18 + 2 * KILLS
POINTS = ("pipeline.read", "pipeline.prepared", "pipeline.publishing", "pipeline.published", "pipeline.acknowledged")


@pytest.mark.timeout(max(540, TIMEOUT_SECONDS))  # eleven drivers, one after the other
def test_whatever_is_killed_lost_or_restored_each_row_counts_once(tmp_path: Path, jvm: Jvm) -> None:
    chance = Random(7)
    journal = WrittenJournal(tmp_path / "godwit.db")
    journal.declare("orders", "mails", "events")
    journal.append(list(random_history(["orders", "mails", "events"], ROWS, seed=chance.randrange(1_000))))
    # A commit that was confirmed must be there after the server was killed.
    with postgres_server(synchronous_commit="on") as server:
        server.ask(f"CREATE DATABASE pipeline TEMPLATE {TEMPLATE}")
        store = server.url("pipeline")
        checkpoint, older, go_on = tmp_path / "checkpoint", tmp_path / "older", tmp_path / "go on"
        settings = RunSettings(
            broker_url=journal.url, store_url=store, lake=str(tmp_path / "lake"), parts=("archive", "analytics"),
            master="local[2]", once=True, max_rows=ROWS // BATCHES, checkpoint=str(checkpoint),
        )  # fmt: skip
        # Held behind its first batch, it believes to be the only one while all the others come and go.
        stale = Driver(msgspec.structs.replace(settings, checkpoint=None), hold=go_on)
        stale.until(1)
        for place, point in enumerate(POINTS):
            # Both parts pass the first point in each batch.
            Driver(settings, fault=f"{point}:{3 if place == 0 else 2}", jvm=jvm).died()
            if point == "pipeline.prepared":
                shutil.copytree(checkpoint, older)
            if point == "pipeline.publishing":
                shutil.rmtree(checkpoint)
        for _ in range(KILLS):
            victim = Driver(settings, jvm=jvm)
            victim.until(1)
            time.sleep(chance.random())
            victim.kill()
        shutil.rmtree(checkpoint)
        shutil.copytree(older, checkpoint)
        last = Driver(settings, jvm=jvm)
        last.until(1)
        server.kill()
        server.start()
        go_on.touch()
        stale.until(2)
        stale.kill()
        last.finished()
        assert Driver(settings, jvm=jvm).end() == 0
        assert assert_agreement(journal.url, store, tmp_path / "lake") >= ROWS
