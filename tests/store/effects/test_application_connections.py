"""The outbox and `once` in transactions of the libraries that applications use."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import psycopg
import pytest
from django.db import connection as default_of_django
from sqlalchemy.ext.asyncio import create_async_engine

from godwit.core.errors import InvalidSetting, SchemaOutdated, StoreRefused
from godwit.core.messages.message import Message
from godwit.manager import MessageQueueManager
from tests.store.conformance.harness import StoreHarness
from tests.store.effects.application_connections import CONNECTIONS, Transaction, of_django
from tests.store.tables import rows


@pytest.fixture(autouse=True)
def _django_in_an_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


@pytest.fixture
async def _sales(harness: StoreHarness) -> None:
    """A table of the application in the store's database."""
    store = harness.open()
    await store.ping()
    await store.close()
    if harness.backend == "postgres":
        with psycopg.connect(harness.url) as connection:
            connection.execute("CREATE TABLE sales (id INTEGER)")
        return
    with contextlib.closing(sqlite3.connect(harness.url.removeprefix("sqlite:///"))) as file:
        file.execute("CREATE TABLE sales (id INTEGER)")


@pytest.mark.usefixtures("_sales")
@pytest.mark.parametrize(("backend", "begun"), CONNECTIONS.values(), ids=CONNECTIONS)
async def test_message_key_and_the_applications_row_are_kept_or_lost_together(
    harness: StoreHarness, begun: Transaction, tmp_path: Path
) -> None:
    mq = MessageQueueManager.from_url(f"sqlite:///{tmp_path}/queues.db", store=harness.open())
    async with mq:
        for commit in (False, True):
            async with begun(harness.url, commit) as connection:
                sold = Message(id="sale-8", queue="orders", payload={"id": "8 % äpples"})
                assert await mq.outbox(connection).enqueue_many([sold]) == ["sale-8"]
                async with mq.once("sale:8", connection=connection) as first:
                    assert first
                async with mq.once("sale:8", connection=connection) as again:
                    assert not again
            kept = int(commit)
            assert len(await rows(harness.url, "SELECT * FROM sales")) == kept
            assert len(await rows(harness.url, "SELECT * FROM idempotency_ledger WHERE status = 'done'")) == kept
            assert [row["message_id"] for row in await rows(harness.url, "SELECT * FROM outbox")] == ["sale-8"] * kept


@pytest.mark.usefixtures("_sales")
@pytest.mark.parametrize("backend", ["postgres"])
async def test_connections_that_commit_each_statement_are_refused(
    mq: MessageQueueManager, harness: StoreHarness
) -> None:
    sold = Message(queue="orders")
    async with mq:
        with (
            psycopg.connect(harness.url, autocommit=True) as connection,
            pytest.raises(InvalidSetting, match="inside a transaction"),
        ):
            await mq.outbox(connection).enqueue(sold)
        engine = create_async_engine(harness.url.replace("://", "+asyncpg://"), isolation_level="AUTOCOMMIT")
        async with engine.connect() as other:
            with pytest.raises(InvalidSetting, match="inside a transaction"):
                await mq.outbox(other).enqueue(sold)
        await engine.dispose()
        async with of_django(harness.url, True) as third:
            pass
        with pytest.raises(InvalidSetting, match="outside a transaction"):
            await mq.outbox(third).enqueue(sold)
        with pytest.raises(InvalidSetting, match="outside a transaction"):
            await mq.outbox(default_of_django).enqueue(sold)
    assert await rows(harness.url, "SELECT * FROM outbox") == []


@pytest.mark.parametrize("backend", ["postgres"])
async def test_errors_of_psycopg_become_those_of_the_store(mq: MessageQueueManager, harness: StoreHarness) -> None:
    async with mq:
        with psycopg.connect(harness.url) as connection:
            connection.execute("SET LOCAL search_path TO nowhere")
            with pytest.raises(SchemaOutdated):
                await mq.outbox(connection).enqueue(Message(queue="orders"))
            connection.rollback()
            connection.execute("ALTER TABLE outbox ADD CHECK (queue_name <> 'orders')")
            with pytest.raises(StoreRefused, match="check"):
                await mq.outbox(connection).enqueue(Message(queue="orders"))
            connection.rollback()


@pytest.mark.parametrize("backend", ["sqlite"])
def test_synchronous_programs_use_both_through_the_bridge(harness: StoreHarness, tmp_path: Path) -> None:
    mq = MessageQueueManager.from_url(f"sqlite:///{tmp_path}/queues.db", store=harness.open())
    try:
        with contextlib.closing(sqlite3.connect(harness.url.removeprefix("sqlite:///"))) as file:
            sold = Message(id="sale-8", queue="orders")
            file.execute("BEGIN IMMEDIATE")
            with pytest.raises(InvalidSetting, match=r"call mq\.sync\.open\(\) when the program starts"):
                mq.sync.outbox(file)
            file.rollback()
            mq.sync.open()
            assert mq.sync.outbox(file).enqueue(sold) == "sale-8"
            with mq.sync.once("sale:8", connection=file) as first:
                assert first
            file.rollback()
            mq.sync.outbox(file).enqueue_many([sold])
            file.commit()
            assert file.execute("SELECT count(*) FROM outbox").fetchall() == [(1,)]
        with mq.sync.once("mail:7") as first:
            assert first
            first.result = "sent"
        with mq.sync.once("mail:7") as again:
            assert not again
            assert again.result == "sent"
        with pytest.raises(ZeroDivisionError), mq.sync.once("mail:8"):
            raise ZeroDivisionError
        with mq.sync.once("mail:8") as first:
            assert first
    finally:
        mq.sync.close()


@pytest.mark.parametrize("backend", ["postgres"])
def test_the_bridge_refuses_asynchronous_connections(harness: StoreHarness, tmp_path: Path) -> None:
    async def open_connection() -> psycopg.AsyncConnection:
        return await psycopg.AsyncConnection.connect(harness.url)

    mq = MessageQueueManager.from_url(f"sqlite:///{tmp_path}/queues.db", store=harness.open())
    try:
        connection = mq.sync.run(open_connection())
        with pytest.raises(InvalidSetting, match="a synchronous connection"):
            mq.sync.outbox(connection).enqueue(Message(queue="orders"))
        mq.sync.run(connection.close())
    finally:
        mq.sync.close()


@pytest.mark.parametrize("backend", ["sqlite"])
async def test_a_handlers_thread_uses_the_outbox_of_the_open_manager_inside_a_transaction(
    harness: StoreHarness, tmp_path: Path
) -> None:
    def sell() -> None:
        with contextlib.closing(sqlite3.connect(harness.url.removeprefix("sqlite:///"))) as file:
            file.execute("BEGIN IMMEDIATE")
            mq.sync.outbox(file).enqueue(Message(id="sale-8", queue="orders"))
            file.commit()

    mq = MessageQueueManager.from_url(f"sqlite:///{tmp_path}/queues.db", store=harness.open())
    async with mq:
        assert mq.store is not None
        await mq.store.ping()
        await asyncio.to_thread(sell)
    assert [row["message_id"] for row in await rows(harness.url, "SELECT * FROM outbox")] == ["sale-8"]
