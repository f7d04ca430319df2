"""A server that is down, dies or hangs: enqueueing goes on, calls fail clearly, the recorder catches up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.sqlite import SqliteBroker
from godwit.core.errors import StoreFull, StoreUnavailable
from godwit.core.messages.message import Message
from godwit.core.settings import Settings
from godwit.manager import MessageQueueManager
from godwit.store.postgres import PostgresStore
from godwit.telemetry.health import Check
from tests.servers.postgres import PostgresServer, fresh_database, postgres_server
from tests.waiting import eventually


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as made:
        yield made


@pytest.fixture
def url(server: PostgresServer) -> Iterator[str]:
    if not server.alive:
        server.start()
    with fresh_database(server) as made:
        yield made


def manager(folder: Path, url: str) -> MessageQueueManager:
    return MessageQueueManager(
        SqliteBroker(str(folder / "broker.db")), store=PostgresStore(url), settings=Settings(store_url=url)
    )


async def test_down_at_start_messages_flow_and_the_recorder_catches_up_later(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    server.kill()
    mq = manager(tmp_path, url)
    handled: list[str] = []

    @mq.consumer("orders")
    async def handle(message: Message) -> None:
        handled.append(message.id)

    async with mq:
        ids = await mq.enqueue_many([Message(queue="orders", payload=number) for number in range(20)])
        recording = asyncio.create_task(mq.store_services.recorder.run())
        worker = mq.worker()
        working = asyncio.create_task(worker.run())
        await eventually(lambda: sorted(handled) == sorted(ids))
        with pytest.raises(StoreUnavailable, match="server is up"):
            await mq.status(ids[0])
        server.start()

        async def recorded() -> bool:
            try:
                status = await mq.status(ids[-1])
            except StoreUnavailable:
                return False
            return status is not None and status.status == "completed"

        await eventually(recorded, within=timedelta(seconds=30))
        worker.stop()
        await working
        recording.cancel()


async def test_killed_in_the_middle_the_recorder_goes_on_where_it_was(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    mq = manager(tmp_path, url)
    async with mq:
        await mq.broker.declare(mq.settings.queue("orders").spec)
        recording = asyncio.create_task(mq.store_services.recorder.run())
        ids = []
        for round_ in range(3):
            ids += await mq.enqueue_many([Message(queue="orders", payload=number) for number in range(50)])
            if round_ == 0:
                assert await mq.status(ids[0]) is not None
                server.kill()
            if round_ == 1:
                server.start()
        await eventually(
            lambda: mq.store_services.recorder.recorded > 0 and mq.store_services.recorder.lag.rows == 0,
            within=timedelta(seconds=30),
        )
        for message_id in (ids[0], ids[60], ids[-1]):
            status = await mq.status(message_id)
            assert status is not None
            assert status.status == "pending"
        recording.cancel()


async def test_the_health_status_says_whether_the_database_answers(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    async with manager(tmp_path, url) as mq:

        async def database() -> Check:
            status = await mq.monitor.get_health_status()
            (check,) = [one for one in status.checks if one.name == "database"]
            return check

        assert (await database()).healthy
        server.kill()
        check = await database()
        assert not check.healthy
        assert "server is up" in check.detail
        server.start()

        async def is_back() -> bool:
            return (await database()).healthy

        await eventually(is_back, within=timedelta(seconds=30))


async def test_a_full_disk_is_named_and_nothing_of_the_call_is_stored(url: str) -> None:
    """A tablespace cannot be filled here without a disk of its own; the server's own word for it stands in."""
    async with PostgresStore(url) as store:

        async def write() -> None:
            async with store.database.transaction("recording") as connection:
                await connection.execute("INSERT INTO campaigns (name) VALUES ('spring')")
                await connection.execute("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END $$")

        with pytest.raises(StoreFull, match="Free some space"):
            await write()
        async with store.database.connection("looking") as connection:
            assert await connection.fetchval("SELECT count(*) FROM campaigns") == 0


async def test_a_wrong_password_or_database_is_told_without_the_password(url: str) -> None:
    address = url.replace("godwit@", "godwit:geheim@").rsplit("/", 1)[0] + "/nowhere"
    async with PostgresStore(address) as store:
        with pytest.raises(StoreUnavailable, match="nowhere") as error:
            await store.ping()
        assert "geheim" not in str(error.value)
