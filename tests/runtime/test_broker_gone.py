"""A broker that is gone: at start, in the middle, for a minute. Workers wait, lose nothing and repeat nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.memory import MemoryBroker
from godwit.brokers.memory.engine import MemoryEngine
from godwit.brokers.urls import connect
from godwit.cli.exits import Exit
from godwit.core.clock import ManualClock
from godwit.core.errors import BrokerUnavailable
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.names import QueueName
from godwit.core.queues import QueueSpec
from godwit.runtime.worker.consumer import Consumer
from godwit.runtime.worker.worker import Worker, WorkerSettings
from godwit.sqlite_writer.file_lock import FileLock
from tests.runtime.worker_processes import ORDERS, ROOT, STARTED, SampleWorkers, catches_sigterm
from tests.waiting import eventually, real_time

HANDLER_FORMS = "tests.runtime.handler_forms_app:mq"
Q = QueueName("q")


def test_gone_at_start_is_a_sentence_and_exit_code_3(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "GODWIT_URL": f"sqlite:///{tmp_path}/nowhere/shop.db",
        "SAMPLE_RECORD": str(tmp_path / "record"),
    }
    command = [sys.executable, "-m", "godwit", "worker", "tests.runtime.sample_app:mq"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == Exit.UNAVAILABLE
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


async def test_gone_at_start_is_waited_for_when_asked_to(sample: SampleWorkers, tmp_path: Path) -> None:
    folder = tmp_path / "later"
    url = f"sqlite:///{folder}/shop.db"
    with sample.worker("--wait-for-broker", "60s", GODWIT_URL=url) as process:
        await eventually(lambda: catches_sigterm(process.pid), within=STARTED)
        folder.mkdir()
        async with connect(url) as broker:
            await broker.declare(QueueSpec(name=ORDERS))
            await broker.publish([seal(Message(queue=ORDERS, payload="work"))])
            await eventually(lambda: len(sample.recorded("end")) == 1, within=STARTED)


async def test_gone_in_the_middle_for_longer_than_a_lease_repeats_nothing(
    sample: SampleWorkers, tmp_path: Path
) -> None:
    await sample.publish(*["work"] * 5)
    lock = FileLock(tmp_path / "shop.db.lock")
    with sample.worker(target=HANDLER_FORMS, seconds=1.0):
        await eventually(lambda: len(sample.recorded("begin")) == 5, within=STARTED)
        lock.acquire()  # no worker can write: no renewal, no settlement, no pull
        try:
            await eventually(lambda: len(sample.recorded("end")) == 5)
            await real_time(timedelta(seconds=2.5))  # the leases are of one second
        finally:
            lock.release()
        await eventually(sample.is_empty, within=STARTED)
        await sample.publish("work", first=5)
        await eventually(lambda: len(sample.recorded("end")) == 6, within=timedelta(seconds=10))
    assert sorted(sample.recorded("begin")) == [f"o{number}" for number in range(6)], "each ran once"


class FleetingBroker(MemoryBroker):
    """A memory broker whose server can be away."""

    away = False

    @property
    def engine(self) -> MemoryEngine:
        """The engine, unless the server is away."""
        if self.away:
            raise BrokerUnavailable("fleeting://", "the server is away", "Wait.")
        return super().engine


@asynccontextmanager
async def at_work(broker: FleetingBroker, clock: ManualClock, consumer: Consumer) -> AsyncIterator[Worker]:
    """Run a worker until the block ends."""
    worker = Worker(broker, [consumer], settings=WorkerSettings(grace=timedelta(seconds=1)), clock=clock)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running


@pytest.mark.parametrize("ends", ["during the outage", "after the outage"])
@pytest.mark.parametrize("lease", [timedelta(seconds=40), timedelta(seconds=15)])
async def test_gone_for_a_minute_with_a_handler_at_work(ends: str, lease: timedelta) -> None:
    clock = ManualClock()
    begun, may_end = list[str](), asyncio.Event()

    async def handler(message: Message) -> None:
        begun.append(message.payload)
        if message.payload == "long":
            await may_end.wait()

    async with FleetingBroker(clock=clock) as broker:
        await broker.declare(QueueSpec(name=Q))
        async with at_work(broker, clock, Consumer(handler=handler, queues=(Q,), lease=lease)):
            await broker.publish([seal(Message(queue=Q, payload="long"))])
            await eventually(lambda: begun == ["long"])
            broker.away = True
            for _ in range(60):
                clock.advance(timedelta(seconds=1))
                await asyncio.sleep(0.02)
            if ends == "during the outage":
                may_end.set()
                await asyncio.sleep(0.1)
            broker.away = False
            may_end.set()
            await broker.publish([seal(Message(queue=Q, payload="next"))])
            await eventually(lambda: "next" in begun, within=timedelta(seconds=5))

            async def settled() -> bool:
                return (await broker.stats())[0].groups[0].depth == 0

            await eventually(settled)
        (stats,) = await broker.stats()
        assert stats.groups[0].dead == 0
    # After an outage, however long, the lease ends one length from then: long enough to renew it.
    assert Counter(begun) == {"long": 1, "next": 1}
