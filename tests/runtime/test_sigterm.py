"""SIGTERM at every moment of a worker's life: it ends by itself, loses nothing and burns no attempt."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.contract import Delivery
from godwit.cli.exits import Exit
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import QueueSpec
from godwit.runtime.worker.heartbeat import InstanceStatus
from godwit.sqlite_writer.file_lock import FileLock
from tests.runtime.worker_processes import ORDERS, STARTED, SampleWorkers, catches_sigterm
from tests.steal_time import calm
from tests.waiting import eventually

HANDLER_FORMS = "tests.runtime.handler_forms_app:mq"
LETTERS = QueueName("letters")
PARCELS = QueueName("parcels")


async def terminated(process: subprocess.Popen[bytes], *, within: float) -> None:
    """Send SIGTERM and see the process end well in time."""
    process.send_signal(signal.SIGTERM)
    await eventually(lambda: process.poll() is not None, within=timedelta(seconds=within), what="the worker's end")
    assert process.returncode == 0


async def is_active(sample: SampleWorkers) -> bool:
    return (await sample.states())[InstanceStatus.ACTIVE] > 0


async def waiting_in(sample: SampleWorkers, queue: QueueName) -> list[Delivery]:
    """Take what waits in a queue, to look at its counters."""
    group = GroupName("default")
    return await sample.broker.pull(queue, group, worker="test", limit=100, lease=timedelta(seconds=60))


def unburnt(deliveries: list[Delivery]) -> bool:
    """Say whether nothing but this delivery was counted."""
    return all((one.attempt, one.failures, one.crashes) == (1, 0, 0) for one in deliveries)


def with_grace(tmp_path: Path, seconds: float) -> str:
    file = tmp_path / "godwit.toml"
    file.write_text(f'[consumer]\nshutdown_grace = "{int(seconds * 1000)}ms"')
    return str(file)


async def test_while_the_application_is_imported(sample: SampleWorkers) -> None:
    await sample.publish("work")
    with sample.worker(target=HANDLER_FORMS, SAMPLE_IMPORT_SECONDS="30") as process:
        process.send_signal(signal.SIGTERM)
        await eventually(lambda: process.poll() is not None, within=STARTED)
        assert process.returncode in {0, -signal.SIGTERM}
    assert unburnt(await waiting_in(sample, ORDERS))


async def test_while_it_waits_for_a_broker_that_is_not_there(sample: SampleWorkers, tmp_path: Path) -> None:
    missing = f"sqlite:///{tmp_path}/nowhere/shop.db"
    with sample.worker(
        "--wait-for-broker", "60s", target=HANDLER_FORMS, GODWIT_URL=missing, SAMPLE_RECORD="/dev/null"
    ) as one:
        await eventually(lambda: catches_sigterm(one.pid), within=STARTED)
        await terminated(one, within=5)


async def test_while_it_waits_for_messages(sample: SampleWorkers) -> None:
    with sample.worker(target=HANDLER_FORMS) as process:
        await eventually(lambda: is_active(sample), within=STARTED)
        await terminated(process, within=3)
    assert (await sample.states())[InstanceStatus.ACTIVE] == 0


async def test_while_it_pulls_under_load_again_and_again(sample: SampleWorkers) -> None:
    await sample.publish(*["work"] * 2_000)
    ended = 0
    for _ in range(4):
        with sample.worker(target=HANDLER_FORMS) as process:
            ended += 50
            await eventually(lambda goal=ended: len(sample.recorded("end")) >= goal, within=STARTED)
            await terminated(process, within=10)
        ended = len(sample.recorded("end"))
    left = await waiting_in(sample, ORDERS)
    assert (await sample.group()).leased == len(left)
    assert unburnt(left), "a clean stop burns no attempt"
    assert max(Counter(sample.recorded("end")).values()) == 1, "and repeats nothing"
    assert len(sample.recorded("begin")) == len(sample.recorded("end"))


@pytest.mark.parametrize("queue", [ORDERS, LETTERS, PARCELS])
async def test_while_handlers_run_that_end_within_the_grace_time(sample: SampleWorkers, queue: QueueName) -> None:
    await sample.broker.declare(QueueSpec(name=queue))
    await sample.publish("work", "work", "work", queue=queue)
    with sample.worker(target=HANDLER_FORMS, seconds=0.5) as process:
        await eventually(lambda: len(sample.recorded("begin")) == 3, within=STARTED)
        await terminated(process, within=10)
    assert sorted(sample.recorded("end")) == ["o0", "o1", "o2"]
    assert await sample.is_empty(queue)


@pytest.mark.parametrize("queue", [ORDERS, LETTERS, PARCELS])
async def test_while_handlers_run_that_do_not_end_within_the_grace_time(
    sample: SampleWorkers, tmp_path: Path, queue: QueueName
) -> None:
    await sample.broker.declare(QueueSpec(name=queue))
    await sample.publish("work", "work", queue=queue)
    with sample.worker(target=HANDLER_FORMS, seconds=120, SAMPLE_CONFIG=with_grace(tmp_path, 0.3)) as process:
        await eventually(lambda: len(sample.recorded("begin")) == 2, within=STARTED)
        since = calm()
        await terminated(process, within=10)
        assert calm() - since < 10
    found = await waiting_in(sample, queue)
    assert len(found) == 2
    assert unburnt(found)


async def test_while_a_batch_is_being_collected(sample: SampleWorkers) -> None:
    await sample.broker.declare(QueueSpec(name=PARCELS))
    await sample.publish("work", "work", "work", queue=PARCELS)
    with sample.worker(target=HANDLER_FORMS) as process:

        async def collecting() -> bool:
            return (await sample.group(PARCELS)).leased == 3

        await eventually(collecting, within=STARTED)
        assert sample.recorded("begin") == []
        await terminated(process, within=15)
    done, left = Counter(sample.recorded("end")), await waiting_in(sample, PARCELS)
    assert sorted([*done, *(one.message_id for one in left)]) == ["o0", "o1", "o2"]
    assert set(done.values()) <= {1}
    assert unburnt(left)


async def test_while_settlements_wait_for_the_broker_that_comes_back(sample: SampleWorkers, tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "shop.db.lock")
    await sample.publish("work")
    with sample.worker(target=HANDLER_FORMS, seconds=0.5) as process:
        await eventually(lambda: sample.recorded("begin") == ["o0"], within=STARTED)
        lock.acquire()
        try:
            await eventually(lambda: sample.recorded("end") == ["o0"])
            process.send_signal(signal.SIGTERM)
        finally:
            lock.release()
        await eventually(lambda: process.poll() is not None, within=timedelta(seconds=15))
        assert process.returncode == 0
    assert await sample.is_empty()
    assert sample.recorded("begin") == ["o0"]


async def test_while_settlements_wait_for_a_broker_that_stays_away(sample: SampleWorkers, tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "shop.db.lock")
    await sample.publish("work")
    with sample.worker(target=HANDLER_FORMS, seconds=0.5, SAMPLE_CONFIG=with_grace(tmp_path, 0.3)) as process:
        await eventually(lambda: sample.recorded("begin") == ["o0"], within=STARTED)
        lock.acquire()
        try:
            await eventually(lambda: sample.recorded("end") == ["o0"])
            process.send_signal(signal.SIGTERM)
            await eventually(lambda: process.poll() is not None, within=timedelta(seconds=25))
            assert process.returncode == Exit.UNAVAILABLE
        finally:
            lock.release()
    with sample.worker(target=HANDLER_FORMS):
        await eventually(sample.is_empty, within=STARTED)
    assert sample.recorded("end") in (["o0"], ["o0", "o0"]), "handled again at most, lost never"
