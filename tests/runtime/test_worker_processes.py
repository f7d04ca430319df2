"""Real worker processes on a SQLite file: signals, crashes and restarts, judged by what the handlers recorded."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from godwit.core.failures.failure import FailureKind
from godwit.core.journal.statuses import Status
from godwit.core.names import QueueName
from godwit.core.queues import QueueSpec
from godwit.runtime.worker.heartbeat import InstanceStatus
from godwit.store.urls import connect as connect_store
from tests.runtime.worker_processes import ORDERS, ROOT, STARTED, SampleWorkers
from tests.steal_time import calm
from tests.store.tables import rows
from tests.waiting import eventually


async def ended(process: subprocess.Popen[bytes], *, within: int) -> None:
    """Wait for a good end, so many seconds at most."""
    await eventually(lambda: process.poll() is not None, within=timedelta(seconds=within), what="its end")
    assert process.returncode == 0


async def test_a_second_signal_hands_back_at_once_and_burns_no_attempt(sample: SampleWorkers) -> None:
    await sample.publish("hang", "hang", "hang")
    with sample.worker() as process:
        await eventually(lambda: len(sample.recorded("begin")) == 3, within=STARTED)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        await ended(process, within=10)
    found = await sample.group()
    assert (found.ready, found.leased) == (3, 0)
    deliveries = await sample.broker.pull(ORDERS, found.name, worker="test", limit=3, lease=timedelta(seconds=30))
    assert [(one.attempt, one.failures, one.crashes) for one in deliveries] == [(1, 0, 0)] * 3


async def test_sigterm_finishes_what_fits_in_the_grace_time(sample: SampleWorkers) -> None:
    await sample.publish(*["work"] * 5)
    with sample.worker(seconds=0.5) as process:
        await eventually(lambda: len(sample.recorded("begin")) == 5, within=STARTED)
        process.send_signal(signal.SIGTERM)
        await ended(process, within=10)
    assert len(sample.recorded("end")) == 5
    assert await sample.is_empty()


async def test_what_a_worker_did_is_recorded_for_other_processes_within_a_second(sample: SampleWorkers) -> None:
    async with connect_store(sample.url) as store:

        async def is_recorded(name: str) -> bool:
            found = await store.messages.status(name)  # nothing asks for it to be recorded
            return found is not None and found.status is Status.COMPLETED

        lags = []
        with sample.worker():
            for number in range(12):
                await sample.publish("work", first=number)
                await eventually(lambda number=number: f"o{number}" in sample.recorded("end"), within=STARTED)
                began = calm()
                await eventually(partial(is_recorded, f"o{number}"))
                lags.append(calm() - began)
    assert median(lags) < 1, lags


async def test_a_worker_records_into_its_brokers_file_unless_told_to_keep_no_store(sample: SampleWorkers) -> None:
    async def statuses() -> list[str]:
        with suppress(sqlite3.OperationalError):  # the tables are made when they are first needed
            return [row["status"] for row in await rows(sample.url, "SELECT status FROM queue_messages_history")]
        return []

    await sample.publish("work")
    with sample.worker(GODWIT_STORE_URL="none"):
        await eventually(sample.is_empty, within=STARTED)
        assert await statuses() == []
    with sample.worker(GODWIT_STORE_URL=""):  # as if it were not set

        async def is_completed() -> bool:
            return await statuses() == ["completed"]

        await eventually(is_completed, within=STARTED)


async def test_kill_9_loses_nothing_and_repeats_at_most_what_the_victim_held(sample: SampleWorkers) -> None:
    await sample.publish(*["work"] * 60)
    with sample.worker(seconds=0.05) as victim:
        await eventually(lambda: len(sample.recorded("end")) >= 10, within=STARTED)
        victim.kill()
        victim.wait()
        held = (await sample.group()).leased
        assert held > 0
    with sample.worker(seconds=0.0):
        await eventually(sample.is_empty, within=STARTED)
    ends = Counter(sample.recorded("end"))
    assert set(ends) == {f"o{n}" for n in range(60)}
    assert sum(ends.values()) - 60 <= held
    assert (await sample.group()).dead == 0


async def test_a_message_that_takes_down_three_workers_is_isolated_as_poison(sample: SampleWorkers) -> None:
    await sample.publish("exit", "work")
    with sample.worker("--processes", "2"):
        await eventually(lambda: _dead(sample), within=3 * STARTED)  # three starts
        (letter,) = await sample.broker.dead_letters.page(ORDERS)
        assert (letter.kind, letter.crashes, letter.failures) == (FailureKind.POISON, 3, 0)
        assert sample.recorded("end") == ["o1"]
        assert len(sample.pids()) >= 3


async def test_children_of_a_supervisor_that_was_killed_stop_by_themselves(sample: SampleWorkers) -> None:
    await sample.publish("work", "work")
    with sample.worker("--processes", "2") as supervisor:
        await eventually(lambda: _states(sample, {InstanceStatus.ACTIVE: 2}), within=STARTED)
        supervisor.kill()
        supervisor.wait()
        await eventually(lambda: _states(sample, {InstanceStatus.INACTIVE: 2}))


async def _dead(sample: SampleWorkers) -> bool:
    return (await sample.group()).dead == 1


async def test_instances_show_as_failed_failed_and_inactive_within_15_seconds(
    sample: SampleWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSUMER_HEARTBEAT_INTERVAL", "1000")
    with sample.worker() as killed, sample.worker() as stopped, sample.worker() as gentle:
        await eventually(lambda: _states(sample, {InstanceStatus.ACTIVE: 3}), within=STARTED)
        killed.kill()
        await sample.freeze(stopped)
        gentle.send_signal(signal.SIGTERM)
        since = calm()
        expected = {InstanceStatus.FAILED: 2, InstanceStatus.INACTIVE: 1}
        await eventually(lambda: _states(sample, expected), within=timedelta(seconds=15))
        assert calm() - since < 15


async def _states(sample: SampleWorkers, expected: dict[InstanceStatus, int]) -> bool:
    return await sample.states() == Counter(expected)


async def test_a_stopped_worker_that_wakes_after_its_lease_does_not_settle_what_another_has_done(
    sample: SampleWorkers, tmp_path: Path
) -> None:
    go_on = tmp_path / "go on"
    await sample.publish("work")
    with sample.worker(SAMPLE_GO_ON=str(go_on)) as sleeper:
        await eventually(lambda: len(sample.recorded("begin")) == 1, within=STARTED)
        await sample.freeze(sleeper)
        with sample.worker():
            await eventually(sample.is_empty, within=STARTED)
            go_on.touch()
            sleeper.send_signal(signal.SIGCONT)
            await eventually(lambda: len(sample.recorded("end")) == len(sample.recorded("begin")))
        sleeper.send_signal(signal.SIGTERM)
        await ended(sleeper, within=15)
    assert len(sample.pids()) == 2, "only one worker had the message: the test showed nothing"
    assert await sample.is_empty()
    assert (await sample.group()).dead == 0


@pytest.mark.parametrize(
    ("target", "word"),
    [
        ("tests.runtime.nowhere:mq", "cannot be imported"),
        ("tests.runtime.sample_app:nothing", "has no 'nothing'"),
        ("tests.runtime.sample_app:charge", "not a MessageQueueManager"),
        ("tests.runtime.sample_app", "module:name"),
    ],
)
def test_a_target_that_is_no_manager_is_a_sentence_and_exit_code_2(tmp_path: Path, target: str, word: str) -> None:
    environment = {**os.environ, "SAMPLE_RECORD": str(tmp_path / "record"), "GODWIT_URL": "memory://"}
    command = [sys.executable, "-m", "godwit", "worker", target]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("CONSUMER_MAX_CONCURRENCY", "many", "CONSUMER_MAX_CONCURRENCY is 'many'"),
        ("GODWIT_URL", "carrier-pigeon://roof", "carrier-pigeon"),
        ("MONITORING_ALERT_THRESHOLDS", "{", "MONITORING_ALERT_THRESHOLDS"),
    ],
)
def test_a_configuration_error_is_a_sentence_and_exit_code_2(tmp_path: Path, name: str, text: str, word: str) -> None:
    environment = {**os.environ, "SAMPLE_RECORD": str(tmp_path / "record"), "GODWIT_URL": "memory://", name: text}
    command = [sys.executable, "-m", "godwit", "worker", "tests.runtime.sample_app:mq"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_handler_that_hangs_in_a_thread_is_no_longer_renewed_past_its_time_and_another_takes_over(
    sample: SampleWorkers, tmp_path: Path
) -> None:
    config = tmp_path / "godwit.toml"
    config.write_text('[consumer]\nprocessing_timeout = "500ms"\nshutdown_grace = "500ms"')
    letters = QueueName("letters")
    await sample.broker.declare(QueueSpec(name=letters))
    await sample.publish("work", queue=letters)
    one_slot = ("--concurrency", "1")  # which the thread that hangs keeps: this worker cannot take the message again
    target = "tests.runtime.handler_forms_app:mq"
    with sample.worker(*one_slot, target=target, seconds=300, SAMPLE_CONFIG=str(config)) as hanging:
        await eventually(lambda: sample.recorded("begin") == ["o0"], within=STARTED)
        with sample.worker(target=target, SAMPLE_CONFIG=str(config)):
            await eventually(lambda: sample.recorded("end") == ["o0"], within=STARTED)
            await eventually(lambda: sample.is_empty(letters), what="the handled message is settled")
        hanging.send_signal(signal.SIGTERM)
        await ended(hanging, within=15)  # a thread that hangs does not keep the process
    assert await sample.is_empty(letters), "the late end of the first changed nothing"
