"""Workers on a Redis server that is killed, stopped or frozen: each of them consumes again within five seconds."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.urls import connect
from godwit.cli.exits import Exit
from godwit.core.queues import QueueSpec
from godwit.runtime.worker.heartbeat import InstanceStatus
from tests.runtime.worker_processes import ORDERS, STARTED, SampleWorkers
from tests.servers.redis import RedisServer, redis_server
from tests.steal_time import calm
from tests.waiting import eventually, real_time

WORKERS = 3
WITHIN = timedelta(seconds=5)
MANY = 500


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """Give a Redis server of this test's own."""
    with redis_server() as found:
        yield found


@asynccontextmanager
async def shop_on(server: RedisServer, folder: Path) -> AsyncIterator[SampleWorkers]:
    """Give a shop whose queue is declared on the server."""
    async with connect(server.url) as broker:
        await broker.declare(QueueSpec(name=ORDERS))
        yield SampleWorkers(folder, broker, server.url)


async def all_at_work(sample: SampleWorkers) -> bool:
    return (await sample.states())[InstanceStatus.ACTIVE] == WORKERS


def handlers(sample: SampleWorkers, lines: int) -> set[int]:
    """Return the processes that handled something after the first `lines` lines of the record."""
    if not sample.record.exists():
        return set()
    return {int(line.split()[2]) for line in sample.record.read_text().splitlines()[lines:] if line.startswith("end ")}


async def published_again(sample: SampleWorkers, first: int) -> None:
    """Publish work for longer than the workers that come back first need for it alone, as soon as the server lives."""
    await sample.publish(*["work"] * MANY, first=first)


async def test_every_worker_consumes_again_within_5_seconds_of_a_servers_return(
    server: RedisServer, tmp_path: Path
) -> None:
    async with shop_on(server, tmp_path) as sample:
        with ExitStack() as workers:
            pids = {workers.enter_context(sample.worker(seconds=0.05, SAMPLE_LEASE="5")).pid for _ in range(WORKERS)}
            await eventually(lambda: all_at_work(sample), within=STARTED)
            await sample.publish(*["work"] * 60)
            await eventually(lambda: handlers(sample, 0) == pids, within=STARTED)
            await eventually(sample.is_empty, within=STARTED)
            for number, end in enumerate(("kill", "stop"), 1):
                lines = len(sample.record.read_text().splitlines())
                getattr(server, end)()
                await real_time(timedelta(seconds=6))  # longer than a lease
                server.restart()
                since = calm()
                await published_again(sample, number * 1_000)
                await eventually(lambda lines=lines: handlers(sample, lines) == pids, within=WITHIN)
                assert calm() - since < 5
                await eventually(sample.is_empty, within=STARTED)
    names = sample.recorded("end")
    assert len(set(names)) == 60 + 2 * MANY
    assert len(names) == 60 + 2 * MANY, "nothing ran while the server was away, so nothing is repeated"


async def test_a_server_that_is_frozen_and_goes_on_is_consumed_from_again_within_5_seconds(
    server: RedisServer, tmp_path: Path
) -> None:
    async with shop_on(server, tmp_path) as sample:
        with ExitStack() as workers:
            pids = {workers.enter_context(sample.worker(seconds=0.05)).pid for _ in range(WORKERS)}
            await eventually(lambda: all_at_work(sample), within=STARTED)
            await sample.publish("work")
            await eventually(lambda: len(sample.recorded("end")) == 1)
            os.kill(server.pid, signal.SIGSTOP)
            await real_time(timedelta(seconds=4))
            os.kill(server.pid, signal.SIGCONT)
            await published_again(sample, 100)
            await eventually(lambda: handlers(sample, 2) == pids, within=WITHIN)
            await eventually(sample.is_empty, within=STARTED)


async def test_handlers_at_work_while_the_server_restarts_run_once(server: RedisServer, tmp_path: Path) -> None:
    async with shop_on(server, tmp_path) as sample:
        await sample.publish(*["work"] * 5)
        with sample.worker(seconds=1.0, SAMPLE_LEASE="5"):
            await eventually(lambda: len(sample.recorded("begin")) == 5, within=STARTED)
            server.kill()
            await eventually(lambda: len(sample.recorded("end")) == 5)
            server.restart()
            await eventually(sample.is_empty, within=STARTED)
    assert sorted(sample.recorded("begin")) == [f"o{number}" for number in range(5)]


async def test_a_server_that_is_gone_at_start_is_an_exit_code_or_is_waited_for(
    server: RedisServer, tmp_path: Path
) -> None:
    async with shop_on(server, tmp_path) as sample:
        await sample.publish("work")
        server.stop()
        with sample.worker() as hasty:
            await eventually(lambda: hasty.poll() is not None, within=STARTED)
            assert hasty.returncode == Exit.UNAVAILABLE
        with sample.worker("--wait-for-broker", "60s") as patient:
            await real_time(timedelta(seconds=3))
            assert patient.poll() is None
            server.restart()
            await eventually(lambda: sample.recorded("end") == ["o0"], within=STARTED)
