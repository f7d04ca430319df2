"""The store in a SQLite file: beside a broker, busy, full."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from godwit.brokers.memory import MemoryBroker
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.clock import ManualClock
from godwit.core.errors import StoreBusy, StoreFull, StoreUnavailable
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.queues import QueueSpec
from godwit.runtime.recorder.recorder import Recorder
from godwit.sqlite_writer.file_lock import FileLock
from godwit.store.sqlite import SqliteStore
from tests.store.conformance.harness import StoreHarness
from tests.store.recorder.random_histories import Life
from tests.store.recorder.test_projection import check, journal_rows


async def test_a_full_file_is_named_and_the_recorder_goes_on_when_there_is_room(tmp_path: Path) -> None:
    clock = ManualClock()
    async with MemoryBroker(clock=clock) as broker, SqliteStore(tmp_path / "store.db") as store:
        life = Life(broker, clock, seed=2)
        await life.begin()
        recorder = Recorder(broker.journal, store.messages, batch_rows=50, clock=clock)
        await store.ping()

        def limit(connection: sqlite3.Connection, pages: str) -> None:
            connection.execute(f"PRAGMA max_page_count = {pages}")

        await store.file.write("limiting", lambda connection: limit(connection, "1"))  # full from now on
        await life.live(150)
        with pytest.raises(StoreFull, match="Free some space"):
            await recorder.catch_up()
        await store.file.write("limiting", lambda connection: limit(connection, "1000000"))
        await recorder.catch_up()
        await check(StoreHarness("sqlite", f"sqlite:///{tmp_path / 'store.db'}"), await journal_rows(broker))


async def test_broker_and_store_wait_for_each_other_in_the_same_queue(tmp_path: Path) -> None:
    lock = FileLock(Path(f"{tmp_path / 'both.db'}.lock"))
    async with SqliteStore(tmp_path / "both.db") as store:
        await store.ping()
        lock.acquire()
        try:
            waiting = asyncio.create_task(store.file.write("a write", lambda _connection: "written"))
            done, _ = await asyncio.wait({waiting}, timeout=0.1)
            assert not done, "the broker's lock keeps the store out"
        finally:
            lock.release()
        assert await waiting == "written"
    lock.close()


async def test_a_lock_that_does_not_come_free_is_told_in_time_and_the_step_is_never_done(tmp_path: Path) -> None:
    lock = FileLock(Path(f"{tmp_path / 'both.db'}.lock"))
    done = threading.Event()
    async with SqliteStore(tmp_path / "both.db", busy_seconds=0.2) as store:
        await store.ping()
        lock.acquire()
        with pytest.raises(StoreBusy, match=r"held .* for 0\.2 s"):
            await store.file.write("a write", lambda _connection: done.set())
        with pytest.raises(StoreBusy):
            await store.file.write("another", lambda _connection: done.set())
        lock.release()
        await store.ping()
    lock.close()


async def test_a_broker_is_not_starved_by_a_recorder_on_its_file(tmp_path: Path) -> None:
    file = tmp_path / "both.db"
    async with SqliteBroker(str(file)) as broker, SqliteStore(file) as store:
        await broker.declare(QueueSpec(name="orders"))
        recorder = Recorder(broker.journal, store.messages)
        for number in range(20):
            messages = [Message(id=f"o{number}-{n}", queue="orders", payload="x" * 300) for n in range(200)]
            await broker.publish([seal(message) for message in messages])
        recording = asyncio.create_task(recorder.catch_up())
        published = 0
        while not recording.done():
            await broker.publish([seal(Message(queue="orders"))])
            published += 1
        await recording
        assert published >= 3, "publishing goes on while thousands of rows are recorded"


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("dear diary" * 200)
    async with SqliteStore(file) as store:
        with pytest.raises(StoreUnavailable, match="not a database"):
            await store.ping()
    assert file.read_text() == "dear diary" * 200


async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "nowhere" / "store.db") as store:
        with pytest.raises(StoreUnavailable, match="nowhere"):
            await store.ping()


async def test_readers_see_one_state_while_somebody_writes(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "store.db") as store:
        await store.ping()
        insert = "INSERT INTO campaigns (name) VALUES (?)"

        def both(connection: sqlite3.Connection) -> tuple[int, int]:
            first = connection.execute("SELECT count(*) FROM campaigns").fetchone()[0]
            other = sqlite3.connect(tmp_path / "store.db")
            other.execute(insert, ("between",))
            other.commit()
            other.close()
            return first, connection.execute("SELECT count(*) FROM campaigns").fetchone()[0]

        assert await store.file.read("looking twice", both) == (0, 0)
