"""Killed at any point, the recorder leaves tables that equal a replay of the journal up to its position."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from godwit.brokers.sqlite import SqliteBroker
from godwit.core.clock import ManualClock
from godwit.core.fault_points import VARIABLE
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.journal.shards import Position
from godwit.runtime.recorder.recorder import Recorder
from tests.project.specification import ROOT
from tests.store.conformance.harness import BACKENDS, StoreHarness, harness_of
from tests.store.recorder.random_histories import Life
from tests.store.recorder.test_projection import check, journal_rows
from tests.store.tables import rows

POINTS = ("recorder.read", "recorder.positioned", "recorder.changed", "recorder.before_commit", "recorder.committed")


def test_every_point_of_the_recorder_is_tried() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "godwit").rglob("record*.py"))
    assert set(re.findall(r'fault_point\("([\w.]+)"\)', text)) == set(POINTS)


def record(file: Path, harness: StoreHarness, fault: str = "") -> int:
    """Run a recorder until it has caught up or is killed; return its exit code."""
    command = [sys.executable, "-m", "tests.store.recorder.process", str(file), harness.url, "60"]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {VARIABLE: fault}, check=False, timeout=200).returncode


async def check_up_to_position(broker: SqliteBroker, harness: StoreHarness) -> None:
    """Compare the tables with a replay of exactly the rows that the positions say are recorded."""
    told = []
    for position in await rows(harness.url, "SELECT shard, seq FROM recorder_position"):
        for chunk in await broker.journal.read(position["shard"], limit=1_000_000):
            told += [row for row in rows_of(decode_chunk(chunk), position["shard"]) if row["seq"] <= position["seq"]]
    await check(harness, told)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_killed_at_any_point_the_tables_equal_a_replay(backend: str, tmp_path: Path) -> None:
    clock, file = ManualClock(), tmp_path / "broker.db"
    async with SqliteBroker(str(file), clock=clock) as broker:
        life = Life(broker, clock, seed=5)
        await life.begin()
        await life.live(60)
        with harness_of(backend, tmp_path) as harness:
            async with harness.open() as store:
                await store.ping()
            for number, point in enumerate(POINTS):
                assert record(file, harness, f"{point}:{1 + number % 2}") == -signal.SIGKILL, point
                await check_up_to_position(broker, harness)
                await life.live(8)
            assert record(file, harness) == 0
            await check(harness, await journal_rows(broker))


@pytest.mark.parametrize("backend", BACKENDS)
async def test_two_recorders_at_once_record_everything_once(backend: str, tmp_path: Path) -> None:
    clock = ManualClock()
    async with SqliteBroker(str(tmp_path / "broker.db"), clock=clock) as broker:
        life = Life(broker, clock, seed=9)
        await life.begin()
        with harness_of(backend, tmp_path) as harness:
            async with harness.open() as one, harness.open() as other:
                recorders = [Recorder(broker.journal, store.messages, batch_rows=50) for store in (one, other)]
                for _ in range(6):
                    await life.live(25)
                    for recorder in recorders:
                        await recorder.tick()
                    if any(recorder.overtaken for recorder in recorders):
                        break
                assert any(recorder.overtaken for recorder in recorders), "the second finds the position moved"
                for recorder in recorders:
                    await recorder.catch_up()
                await check(harness, await journal_rows(broker))
                assert await one.messages.positions() == {
                    shard: Position(ends.epoch, ends.last_seq)
                    for shard, ends in (await broker.journal.shards()).items()
                }
