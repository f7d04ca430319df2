"""A broker that lost its last writes, or was set back, gives the numbers of its rows again under the same epoch."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.contract import Ack, Broker
from godwit.brokers.redis import RedisBroker
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.journal.statuses import Status
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.queues import QueueSpec
from godwit.runtime.effects.status import status_of
from godwit.runtime.recorder.recorder import Recorder
from godwit.store.contract import Store
from godwit.telemetry.metrics import QueueMetricsCollector
from tests.servers.redis import RedisServer, redis_server

LEASE = timedelta(seconds=30)


class RedisSetBack:
    """A Redis that is killed and comes back as it was saved."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server

    def broker(self) -> Broker:
        return RedisBroker(self._server.url)

    def save(self) -> None:
        with self._server.client() as client:
            client.save()

    def set_back(self) -> None:
        self._server.kill()
        self._server.start()


class SqliteSetBack:
    """A file that is replaced by an older copy of it."""

    def __init__(self, folder: Path) -> None:
        self._file, self._copy = folder / "broker.db", folder / "copy.db"

    def broker(self) -> Broker:
        return SqliteBroker(self._file)

    def save(self) -> None:
        shutil.copy(self._file, self._copy)

    def set_back(self) -> None:
        for suffix in ("-wal", "-shm"):
            Path(f"{self._file}{suffix}").unlink(missing_ok=True)
        shutil.copy(self._copy, self._file)


SetBack = RedisSetBack | SqliteSetBack


@pytest.fixture(params=["redis", "file"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SetBack]:
    if request.param == "redis":
        with redis_server(appendonly=False) as server:
            yield RedisSetBack(server)
    else:
        yield SqliteSetBack(tmp_path)


class RecordedBroker:
    """A broker, and the recorder of a store that outlives what the broker forgets."""

    def __init__(self, broker: Broker, store: Store, metrics: QueueMetricsCollector) -> None:
        self.broker, self.store = broker, store
        self.recorder = Recorder(broker.journal, store.messages, metrics=metrics)

    async def publish(self, *ids: str) -> None:
        await self.broker.publish([seal(Message(id=one, queue="orders")) for one in ids])

    async def work(self, many: int) -> None:
        found = await self.broker.pull("orders", "default", worker="w", limit=many, lease=LEASE)
        assert len(found) == many
        await self.broker.settle([Ack(one.ack_id) for one in found])

    async def recorded(self, message_id: str) -> Status | None:
        found = await self.store.messages.status(message_id)
        return None if found is None else found.status


@asynccontextmanager
async def opened(backend: SetBack, store: Store, metrics: QueueMetricsCollector) -> AsyncIterator[RecordedBroker]:
    async with backend.broker() as broker:
        yield RecordedBroker(broker, store, metrics)


@pytest.fixture
def metrics() -> QueueMetricsCollector:
    return QueueMetricsCollector()


async def losing(backend: SetBack, store: Store, metrics: QueueMetricsCollector) -> None:
    """Record three kept messages and three of which the broker then knows nothing any more."""
    async with opened(backend, store, metrics) as system:
        await system.broker.declare(QueueSpec(name="orders"))
        await system.publish("kept1", "kept2", "kept3")
    backend.save()
    async with opened(backend, store, metrics) as system:
        await system.work(1)
        await system.publish("lost1", "lost2", "lost3")
        await system.recorder.catch_up()
        assert await system.recorded("kept1") is Status.COMPLETED
        assert await system.recorded("lost3") is Status.PENDING
    backend.set_back()


async def is_in_line(system: RecordedBroker, metrics: QueueMetricsCollector) -> None:
    """See that the tables agree with the broker: what it lost is over, what it holds waits, new work is recorded."""
    assert system.recorder.lag.rows == 0
    assert "godwit_recorder_lost_total 1" in metrics.render()
    (queue,) = await system.broker.stats()
    held = queue.groups[0].depth
    assert len(await system.store.messages.open_copies("orders")) == held
    assert [await system.recorded(f"kept{n}") for n in (1, 2, 3)] == [Status.PENDING] * 3
    await system.publish("fresh")
    await system.work(held + 1)
    await system.recorder.tick()
    assert await system.recorded("fresh") is Status.COMPLETED
    assert await system.recorded("kept1") is Status.COMPLETED
    assert await system.store.messages.open_copies("orders") == []


async def test_a_recorder_that_finds_the_end_before_its_position_says_so_and_records_what_comes(
    backend: SetBack, store: Store, metrics: QueueMetricsCollector
) -> None:
    await losing(backend, store, metrics)
    async with opened(backend, store, metrics) as system:
        await system.publish("new1")
        await system.recorder.catch_up()
        assert await system.recorded("new1") is Status.PENDING
        await is_in_line(system, metrics)


async def test_rows_that_were_written_again_up_to_the_position_and_beyond_are_recorded(
    backend: SetBack, store: Store, metrics: QueueMetricsCollector
) -> None:
    await losing(backend, store, metrics)
    async with opened(backend, store, metrics) as system:
        await system.publish(*(f"new{n}" for n in range(20)))
        await system.recorder.catch_up()
        assert [await system.recorded(f"new{n}") for n in range(20)] == [Status.PENDING] * 20
        await is_in_line(system, metrics)


async def test_a_recorder_that_runs_on_while_its_broker_is_set_back_records_what_comes(
    store: Store, metrics: QueueMetricsCollector
) -> None:
    with redis_server(appendonly=False) as server:
        backend = RedisSetBack(server)
        async with opened(backend, store, metrics) as system:
            await system.broker.declare(QueueSpec(name="orders"))
            await system.publish("kept1", "kept2", "kept3")
            backend.save()
            await system.publish(*(f"lost{n}" for n in range(5)))
            await system.recorder.catch_up()
            backend.set_back()
            await system.recorder.tick()
            await is_in_line(system, metrics)


async def test_who_asks_for_a_status_after_a_loss_gets_the_broker_s_answer(
    backend: SetBack, store: Store, metrics: QueueMetricsCollector
) -> None:
    await losing(backend, store, metrics)
    async with opened(backend, store, metrics) as system:
        found = await status_of(system.broker, store, "kept1", clock=SYSTEM_CLOCK)
        assert found is not None
        assert found.status is Status.PENDING


async def test_a_recorder_that_starts_again_after_a_loss_finds_none_a_second_time(
    backend: SetBack, store: Store, metrics: QueueMetricsCollector
) -> None:
    await losing(backend, store, metrics)
    for _ in range(3):
        async with opened(backend, store, metrics) as system:
            await system.recorder.catch_up()
    assert "godwit_recorder_lost_total 1" in metrics.render()
