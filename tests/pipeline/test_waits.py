"""Nothing of the pipeline waits without end: JVMs that do not come up, calls without an answer, folders in a race."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from godwit.core.errors import PipelineFailed, SparkUnavailable, StoreBusy
from godwit.pipeline.jobs import run
from godwit.pipeline.spark.connections import OPEN_TRIES, Connections
from godwit.pipeline.spark.jvm import PORT, SECRET, Jvm, finishes_within, start_jvm
from godwit.pipeline.spark.run_folder import run_folder, sweep
from godwit.store.sqlite import SqliteStore
from tests.pipeline.drivers import until
from tests.steal_time import calm


@pytest.fixture
def spark_submit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """Put a script in the place of Spark's starter."""

    def put(script: str) -> Path:
        home = tmp_path / "spark"
        (home / "bin").mkdir(parents=True)
        place = home / "bin" / "spark-submit"
        place.write_text(f"#!/bin/sh\n{script}\n")
        place.chmod(0o755)
        monkeypatch.setenv("SPARK_HOME", str(home))
        return tmp_path

    return put


def test_a_jvm_that_ends_without_a_word_is_noticed_at_once(spark_submit: Callable[[str], Path]) -> None:
    folder = spark_submit("echo 'no heap left' >&2; exit 0")
    began = calm()
    with pytest.raises(SparkUnavailable, match="ended at once: no heap left"):
        start_jvm({}, folder)
    assert calm() - began < 30


def test_a_jvm_that_does_not_come_up_is_killed(spark_submit: Callable[[str], Path]) -> None:
    folder = spark_submit('echo $$ > "$(dirname "$0")/pid"; exec sleep 600')
    with pytest.raises(SparkUnavailable, match="did not come up within 1 seconds"):
        start_jvm({}, folder, seconds=1)
    told = folder / "spark" / "bin" / "pid"  # not there when the machine stood still until the end had come
    assert not told.exists() or not Path(f"/proc/{told.read_text().strip()}").exists()


def test_a_jvm_that_does_not_end_is_killed() -> None:
    deaf = subprocess.Popen(["sh", "-c", "exec sleep 600"], stdin=subprocess.PIPE)
    Jvm(deaf, 0, "").end(0.1)
    assert deaf.returncode is not None


def test_below_spark_submit_its_jvm_is_used_and_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(PORT, "4711")
    monkeypatch.setenv(SECRET, "word")
    found = start_jvm({}, tmp_path)
    assert (found.process, found.port, found.secret) == (None, 4711, "word")
    found.end()
    found.kill()


def test_a_call_that_never_returns_is_left() -> None:
    over = threading.Event()
    assert not finishes_within(0.05, lambda: over.wait(30))
    over.set()
    assert finishes_within(30, lambda: None)


def test_a_broker_or_store_that_does_not_answer_ends_the_job(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/godwit.db"
    with Connections(url, url) as connections:
        with pytest.raises(PipelineFailed, match=r"NoAnswer.*within 0 seconds"):
            connections.run(asyncio.sleep(60), seconds=0.05)
        assert connections.run(asyncio.sleep(0, "there")) == "there"


def test_a_store_that_takes_longer_to_open_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, tries = f"sqlite:///{tmp_path}/godwit.db", [StoreBusy("a ping", "slow")] * 2
    pinged = SqliteStore.ping

    async def ping(store: SqliteStore) -> None:
        if tries:
            raise tries.pop()
        await pinged(store)

    monkeypatch.setattr(SqliteStore, "ping", ping)
    with Connections(url, url) as connections:
        assert connections.pipelines(lambda state: state.days()) == []
    tries += [StoreBusy("a ping", "slow")] * 100
    with pytest.raises(StoreBusy), Connections(url, url):
        pass
    assert len(tries) == 100 - OPEN_TRIES


def test_a_folder_that_a_sweep_takes_before_it_is_locked_is_made_again(tmp_path: Path) -> None:
    over = threading.Event()

    def sweeping() -> None:
        while not over.is_set():
            sweep(tmp_path)

    sweepers = [threading.Thread(target=sweeping) for _ in range(2)]
    for sweeper in sweepers:
        sweeper.start()
    try:
        for _ in range(100):
            with run_folder(tmp_path) as folder:
                (folder / "something").write_text("")
    finally:
        over.set()
        for sweeper in sweepers:
            sweeper.join(30)
    until(lambda: not list(tmp_path.iterdir()), seconds=5)


def test_a_query_whose_python_came_up_too_late_begins_again_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[float] = []

    @contextmanager
    def running(*_: object) -> Iterator[None]:
        begun.append(0.0)
        if len(begun) < 8:
            raise PipelineFailed("StreamingQueryException", f"Python worker {run.TOO_SLOW}")
        yield

    monkeypatch.setattr(run, "running_query", running)
    monkeypatch.setattr(run, "wait_for_end", lambda *_: None)
    settings = run.RunSettings(broker_url="memory://", store_url=None, lake="lake", parts=("analytics",))
    nothing: Any = None
    run.follow(nothing, nothing, settings, lambda _: None)
    assert len(begun) == 8
    begun.clear()
    monkeypatch.setattr(run, "START_SECONDS", -1)
    with pytest.raises(PipelineFailed, match=run.TOO_SLOW):
        run.follow(nothing, nothing, settings, lambda _: None)
    assert len(begun) == 1
