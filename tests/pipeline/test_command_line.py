"""`godwit pipeline` from a terminal: a driver of its own, its output, its end on SIGTERM, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pipeline.drivers import members
from tests.pipeline.journals import traffic, url_of
from tests.project.specification import ROOT
from tests.steal_time import calm


def godwit(*words: str, temporary: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "godwit", "pipeline", *words],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(temporary)}, capture_output=True, text=True, check=False,
        timeout=240,
    )  # fmt: skip


def test_a_run_prints_days_shows_its_status_and_ends_cleanly_when_told_to(tmp_path: Path, archive: str) -> None:
    path, temporary = tmp_path / "godwit.db", tmp_path / "tmp"
    temporary.mkdir()
    traffic(path, messages=40)
    empty = godwit("status", "--url", url_of(path), temporary=temporary)
    assert (empty.returncode, "No pipeline has run yet" in empty.stderr) == (1, True)
    running = subprocess.Popen(
        [sys.executable, "-m", "godwit", "pipeline", "analytics", "--url", url_of(path), "--every", "1s"],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(temporary)}, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert running.stderr is not None
    line = running.stderr.readline()
    assert line.startswith("analytics: batch 0"), line
    running.send_signal(signal.SIGTERM)
    _, said = running.communicate(timeout=200)
    assert (running.returncode, "Interrupted after" in said, "Traceback" in said) == (130, True, False), said
    deadline = calm() + 60
    while members(running.pid):
        assert calm() < deadline, "a process of the job is left"
        time.sleep(0.05)
    assert list(temporary.iterdir()) == []
    again = godwit("analytics", "--url", url_of(path), "--once", "--json", temporary=temporary)
    days = json.loads(again.stdout)
    assert {day["consumer_group"]: day["messages_enqueued"] for day in days} == {None: 40, "billing": 40, "mail": 40}
    told = json.loads(godwit("status", "--url", url_of(path), "--json", temporary=temporary).stdout)
    assert [(place["pipeline"], place["lag"]) for place in told] == [("analytics", 0)]
    assert godwit("forget", "default", "--url", url_of(path), temporary=temporary).returncode == 0
    assert godwit("forget", "default", "--url", url_of(path), temporary=temporary).returncode == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["run", "--url", "sqlite:///nowhere.db"], 3, "does not exist"),
        (["run", "--url", "redis://127.0.0.1:1", "--once"], 3, "needs a store"),
        (["run", "--max-rows", "0"], 2, "out of range"),
    ],
)
def test_what_cannot_work_is_refused_before_spark_starts(
    tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    ran = godwit(*words, temporary=tmp_path)
    assert (ran.returncode, said in ran.stderr) == (code, True), ran.stderr
