"""Drivers killed with -9 wherever it hurts: the journal, the minutes, the days and the lake agree to the row."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

import msgspec
import pytest

from godwit.pipeline.jobs.run import RunSettings
from tests.pipeline.drivers import Driver, class_archive
from tests.pipeline.making import WrittenJournal, random_history
from tests.pipeline.oracle import assert_agreement
from tests.servers.postgres import TEMPLATE, postgres_server

ROWS = int(os.environ.get("GODWIT_SPARK_ROWS", "200000"))
POINTS = ("pipeline.read", "pipeline.prepared", "pipeline.publishing", "pipeline.published", "pipeline.acknowledged")


@pytest.mark.timeout(2_400)
def test_whatever_is_killed_lost_or_restored_each_row_counts_once(tmp_path: Path) -> None:
    chance = Random(7)
    journal = WrittenJournal(tmp_path / "godwit.db")
    journal.declare("orders", "mails", "events")
    journal.append(list(random_history(["orders", "mails", "events"], ROWS, seed=chance.randrange(1_000))))
    # A commit that was confirmed must be there after the server was killed.
    with postgres_server(synchronous_commit="on") as server:
        server.ask(f"CREATE DATABASE pipeline TEMPLATE {TEMPLATE}")
        store = server.url("pipeline")
        checkpoint, older = tmp_path / "checkpoint", tmp_path / "older"
        settings = RunSettings(
            broker_url=journal.url, store_url=store, lake=str(tmp_path / "lake"), parts=("archive", "analytics"),
            master="local[2]", once=True, max_rows=ROWS // 14, checkpoint=str(checkpoint),
        )  # fmt: skip
        warm_up = msgspec.structs.replace(settings, max_rows=ROWS // 14, queues=("events",), checkpoint=None)
        with class_archive(tmp_path, warm_up) as environment:
            for place, point in enumerate(POINTS):
                # Both parts pass the first point in each batch.
                passage = 3 if place == 0 else 2
                Driver(settings, fault=f"{point}:{passage}", environment=environment).died()
                if point == "pipeline.prepared":
                    shutil.copytree(checkpoint, older)
                if point == "pipeline.publishing":
                    shutil.rmtree(checkpoint)
            shutil.rmtree(checkpoint, ignore_errors=True)
            shutil.copytree(older, checkpoint)
            first = Driver(settings, environment=environment)
            second = Driver(msgspec.structs.replace(settings, checkpoint=None), environment=environment)
            first.until(1)
            server.kill()
            server.start()
            second.kill()
            first.finished()
            assert Driver(settings, environment=environment).end() == 0
        assert assert_agreement(journal.url, store, tmp_path / "lake") >= ROWS
