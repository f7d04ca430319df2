"""Migrations: while workers run, interrupted half-way, made by a newer version."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from godwit.brokers.memory import MemoryBroker
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.clock import ManualClock
from godwit.core.errors import SchemaTooNew
from godwit.core.fault_points import VARIABLE
from godwit.core.journal.statuses import Status
from godwit.core.messages.message import Message
from godwit.core.names import MessageId, QueueName
from godwit.core.queues import QueueSpec
from godwit.manager import MessageQueueManager
from godwit.runtime.recorder.recorder import Recorder
from godwit.store import sql_files
from godwit.store.contract import Migration
from godwit.store.postgres.database import PACKAGE
from tests.project.specification import ROOT
from tests.store.conformance.harness import BACKENDS, harness_of
from tests.store.recorder.random_histories import Life
from tests.store.recorder.test_projection import check, journal_rows
from tests.store.tables import rows
from tests.waiting import eventually

NEXT = Migration(9_001, "a-column-more")
CHANGE = "ALTER TABLE queue_deliveries ADD COLUMN shelf TEXT; CREATE INDEX idx_shelf ON queue_messages (updated_at);"


async def test_upgrading_while_a_recorder_runs_stops_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with MemoryBroker(clock=clock) as broker:
        life = Life(broker, clock, seed=3)
        await life.begin()
        with harness_of("postgres", tmp_path) as harness:
            async with harness.open() as old, harness.open() as new:
                recorder = Recorder(broker.journal, old.messages, batch_rows=30, clock=clock)
                await old.ping()
                known = sql_files.migrations(PACKAGE)
                monkeypatch.setattr("godwit.store.postgres.database.migrations", lambda _: {**known, NEXT: CHANGE})
                monkeypatch.setattr("godwit.store.postgres.migrate.migrations", lambda _: {**known, NEXT: CHANGE})

                async def work() -> None:
                    for _ in range(10):
                        await life.live(10)
                        await recorder.catch_up()

                _, applied = await asyncio.gather(work(), new.migrations.upgrade())
                assert applied == (NEXT,)
                await check(harness, await journal_rows(broker))


async def test_upgrading_while_a_worker_runs_stops_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[MessageId] = []
    handled: list[MessageId] = []
    with harness_of("postgres", tmp_path) as harness:
        old = harness.open()
        async with MessageQueueManager(MemoryBroker(), store=old) as mq, harness.open() as new:
            await mq.broker.declare(QueueSpec(name=QueueName("orders")))
            await old.ping()
            known = sql_files.migrations(PACKAGE)
            monkeypatch.setattr("godwit.store.postgres.database.migrations", lambda _: {**known, NEXT: CHANGE})
            monkeypatch.setattr("godwit.store.postgres.migrate.migrations", lambda _: {**known, NEXT: CHANGE})

            @mq.consumer("orders", once=lambda message: message.id)
            async def handle(message: Message) -> None:
                handled.append(message.id)

            async def some_more() -> None:
                sent.extend(await mq.enqueue_many([Message(queue="orders", payload=n) for n in range(50)]))
                await eventually(lambda: len(handled) == len(sent))

            worker = mq.worker()
            running = [asyncio.create_task(worker.run()), asyncio.create_task(mq.store_services.run())]
            await some_more()
            upgrading = asyncio.create_task(new.migrations.upgrade())
            while not upgrading.done():
                await some_more()
            await some_more()
            assert await upgrading == (NEXT,)
            found = [await mq.status(known_id) for known_id in sent]
            worker.stop()
            running[1].cancel()
            await asyncio.wait(running)
    assert sorted(handled) == sorted(sent)
    assert {one and one.status for one in found} == {Status.COMPLETED}


async def test_a_schema_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    for backend, table in (("postgres", "godwit_migrations"), ("sqlite", "store_migrations")):
        with harness_of(backend, tmp_path) as harness:
            async with harness.open() as store:
                await store.ping()
            insert = f"INSERT INTO {table} (number, name) VALUES (9001, 'from-the-future') RETURNING number"
            if backend == "sqlite":
                import sqlite3

                connection = sqlite3.connect(harness.url.removeprefix("sqlite:///"))
                connection.execute(insert).fetchall()
                connection.commit()
                connection.close()
            else:
                await rows(harness.url, insert)
            async with harness.open() as store:
                with pytest.raises(SchemaTooNew, match="9001-from-the-future"):
                    await store.ping()
                with pytest.raises(SchemaTooNew):
                    await store.migrations.upgrade()
                assert (await store.migrations.status()).unknown == (Migration(9001, "from-the-future"),)


def run(command: list[str], fault: str) -> int:
    return subprocess.run(command, cwd=ROOT, env=os.environ | {VARIABLE: fault}, check=False, timeout=200).returncode


@pytest.mark.parametrize("backend", BACKENDS)
async def test_an_interrupted_upgrade_is_simply_run_again(backend: str, tmp_path: Path) -> None:
    code = "import asyncio, sys; from tests.servers.postgres import apart; from godwit.store.urls import connect; "
    code += "apart(lambda: connect(sys.argv[1]).migrations.upgrade())"
    with harness_of(backend, tmp_path, migrated=False) as harness:
        for fault in ("store.migrating:3", "store.migrated"):
            assert run([sys.executable, "-c", code, harness.url], fault) == -signal.SIGKILL
        async with harness.open() as store:
            await store.migrations.upgrade()
            assert (await store.migrations.status()).current
            await store.ping()


async def test_a_broker_and_a_store_share_a_sqlite_file(tmp_path: Path) -> None:
    file = tmp_path / "both.db"
    async with SqliteBroker(str(file)) as broker:
        life = Life(broker, ManualClock(), seed=1)
        await life.begin()
        with harness_of("sqlite", tmp_path) as harness:
            harness.url = f"sqlite:///{file}"
            async with harness.open() as store:
                recorder = Recorder(broker.journal, store.messages)
                for _ in range(5):
                    await asyncio.gather(life.live(15), recorder.catch_up())
                await recorder.catch_up()
                await check(harness, await journal_rows(broker))
