"""Databases of other programs: their tables are in the way, or a connection leads there by mistake."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from godwit.core.errors import ForeignConnection, StoreUnavailable
from godwit.core.messages.message import Message
from godwit.manager import MessageQueueManager
from tests.store.conformance.harness import harness_of


async def test_a_table_of_another_program_is_named_and_stays(tmp_path: Path) -> None:
    with harness_of("postgres", tmp_path, migrated=False) as harness:
        connection, store = await asyncpg.connect(harness.url), harness.open()
        try:
            await connection.execute("CREATE TABLE outbox (letter TEXT)")
            with pytest.raises(StoreUnavailable) as caught:
                await store.migrations.upgrade()
            assert 'relation "outbox" already exists, and Godwit did not make it' in caught.value.fact
            assert caught.value.remedy == (
                "Another program uses that name: give Godwit a database of its own, or rename what is in the way."
            )
            assert await connection.fetchval("SELECT count(*) FROM outbox") == 0
        finally:
            await store.close()
            await connection.close()


async def test_a_connection_to_another_database_is_blamed_itself(tmp_path: Path) -> None:
    with harness_of("postgres", tmp_path) as harness:
        mq = MessageQueueManager.from_url("memory://", store=harness.open())
        connection = await asyncpg.connect(harness.url, server_settings={"search_path": "nowhere"})
        try:
            async with mq, connection.transaction():
                await mq.declare("orders")
                with pytest.raises(ForeignConnection) as caught:
                    await mq.outbox(connection).enqueue(Message(queue="orders"))
        finally:
            await connection.close()
        assert caught.value.fact.startswith("The connection leads to a database that lacks ")
        assert "Open it on the store's own database, postgresql://" in caught.value.remedy
