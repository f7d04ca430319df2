"""The outbox: what a transaction enqueues leaves when it commits, and never when it does not."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from godwit.brokers.contract import Receipt
from godwit.core.errors import InvalidMessage, InvalidSetting, QueueNotFound, SchemaOutdated
from godwit.core.messages.envelope import Envelope
from godwit.core.messages.message import Message
from godwit.manager import MessageQueueManager
from tests.store.conformance.harness import StoreHarness
from tests.store.effects.conftest import Run
from tests.store.tables import rows


@contextlib.asynccontextmanager
async def transaction(harness: StoreHarness, *, commit: bool = True) -> AsyncIterator[Any]:
    """Give the application's own connection, inside a transaction."""
    if harness.backend == "sqlite":
        connection = sqlite3.connect(harness.url.removeprefix("sqlite:///"))
        try:
            yield connection
            if commit:
                connection.commit()
            else:
                connection.rollback()
        finally:
            connection.close()
        return
    other = await asyncpg.connect(harness.url)
    try:
        doing = other.transaction()
        await doing.start()
        yield other
        await (doing.commit() if commit else doing.rollback())
    finally:
        await other.close()


async def opened(mq: MessageQueueManager) -> None:
    await mq.broker.declare(mq.settings.queue("orders").spec)
    assert mq.store is not None
    await mq.store.ping()


def order(number: int) -> Message:
    return Message(id=f"o{number}", queue="orders", payload={"order": number})


async def ready(mq: MessageQueueManager) -> list[str]:
    deliveries = await mq.dequeue("orders", limit=100)
    return [delivery.message_id for delivery in deliveries]


async def test_a_message_leaves_after_the_commit_and_not_before(mq: MessageQueueManager, harness: StoreHarness) -> None:
    async with mq:
        await opened(mq)
        async with transaction(harness) as connection:
            assert await mq.outbox(connection).enqueue(order(1)) == "o1"
            await mq.outbox(connection).enqueue_many([order(2), order(3)])
            if harness.backend == "postgres":
                assert await mq.store_services.forwarder.tick() == 0
        assert await mq.store_services.forwarder.tick() == 3
        assert await ready(mq) == ["o1", "o2", "o3"]
        assert await mq.store_services.forwarder.tick() == 0
        assert await rows(harness.url, "SELECT * FROM outbox") == []


async def test_a_rolled_back_message_never_leaves(mq: MessageQueueManager, harness: StoreHarness) -> None:
    async with mq:
        await opened(mq)
        async with transaction(harness, commit=False) as connection:
            await mq.outbox(connection).enqueue(order(1))
        assert await mq.store_services.forwarder.tick() == 0
        assert await ready(mq) == []


@pytest.mark.parametrize("point", ["outbox.claimed", "outbox.published"])
async def test_a_killed_forwarder_neither_loses_nor_doubles(
    mq: MessageQueueManager, harness: StoreHarness, run: Run, point: str
) -> None:
    async with mq:
        await opened(mq)
        async with transaction(harness) as connection:
            await mq.outbox(connection).enqueue_many([order(number) for number in range(50)])
        assert run("forward", point) == -signal.SIGKILL
        await rows_released(harness)
        assert run("forward") == 0
        assert sorted(await ready(mq)) == sorted(f"o{number}" for number in range(50))


async def rows_released(harness: StoreHarness) -> None:
    """Let the dead forwarder's claims end: a minute passes."""
    if harness.backend == "sqlite":
        connection = sqlite3.connect(harness.url.removeprefix("sqlite:///"))
        with connection:
            connection.execute("UPDATE outbox SET due_at = due_at - 60000")
        connection.close()
        return
    other = await asyncpg.connect(harness.url)
    await other.execute("UPDATE outbox SET due_at = due_at - interval '60 s'")
    await other.close()


async def test_one_the_broker_does_not_take_stays_and_does_not_hold_up_others(
    mq: MessageQueueManager, harness: StoreHarness
) -> None:
    async with mq:
        await opened(mq)
        async with transaction(harness) as connection:
            await mq.outbox(connection).enqueue(Message(id="lost", queue="nowhere"))
            await mq.outbox(connection).enqueue(order(1))
        assert await mq.store_services.forwarder.tick() == 1
        assert await ready(mq) == ["o1"]
        (left,) = await rows(harness.url, "SELECT message_id, tries, error FROM outbox")
        assert (left["message_id"], left["tries"]) == ("lost", 1)
        assert str(QueueNotFound("nowhere"))[:20] in left["error"]


async def test_a_refused_message_is_overtaken_by_none_of_its_key(
    mq: MessageQueueManager, harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mq:
        await opened(mq)
        publish, refused = mq.broker.publish, {"k0"}

        async def picky(envelopes: Sequence[Envelope]) -> list[Receipt]:
            if any(envelope.id in refused for envelope in envelopes):
                raise QueueNotFound("orders")
            return await publish(envelopes)

        monkeypatch.setattr(mq.store_services.forwarder, "_publish", picky)
        messages = [Message(id=f"k{number}", queue="orders", ordering_key="k") for number in range(3)]
        other = [Message(id=f"other{number}", queue="orders", ordering_key="o") for number in range(2)]
        async with transaction(harness) as connection:
            await mq.outbox(connection).enqueue_many([*messages, *other])
        assert await mq.store_services.forwarder.tick() == 2
        refused.clear()
        async with transaction(harness) as connection:
            await mq.outbox(connection).enqueue(Message(id="k3", queue="orders", ordering_key="k"))
        assert await mq.store_services.forwarder.tick() == 0, "those before it are not due yet"
        await rows_released(harness)
        assert await mq.store_services.forwarder.tick() == 4
        found = []
        while deliveries := await mq.dequeue("orders", limit=100):
            found += [delivery.message_id for delivery in deliveries]
            for delivery in deliveries:
                await mq.acknowledge_message(delivery)
        assert [one for one in found if one.startswith("k")] == ["k0", "k1", "k2", "k3"]
        assert [one for one in found if one.startswith("other")] == ["other0", "other1"]


async def test_two_forwarders_do_not_publish_one_key_at_once(mq: MessageQueueManager, harness: StoreHarness) -> None:
    async with mq:
        await opened(mq)
        async with transaction(harness) as connection:
            await mq.outbox(connection).enqueue_many(
                [Message(id=f"k{number}", queue="orders", ordering_key="k") for number in range(4)]
            )
        assert mq.store is not None
        outbox = mq.store.outbox
        hold = timedelta(minutes=1)
        claims = await asyncio.gather(*(outbox.claim(hold=hold, limit=2) for _ in range(3)))
        assert sorted(len(one) for one in claims) == [0, 0, 2]
        (first,) = filter(None, claims)
        assert [one.envelope.id for one in first] == ["k0", "k1"]
        await outbox.forwarded([one.number for one in first])
        assert [one.envelope.id for one in await outbox.claim(hold=hold, limit=9)] == ["k2", "k3"]


async def test_published_long_ago_and_not_confirmed_is_looked_up_first(
    mq: MessageQueueManager, harness: StoreHarness, run: Run
) -> None:
    """A forwarder died after publishing, and no other came before the broker had forgotten the id."""
    async with mq:
        await mq.broker.declare(
            type(mq.settings.queue("orders").spec)(name="orders", dedup_window=timedelta(milliseconds=1))
        )
        async with transaction(harness) as connection:
            await mq.outbox(connection).enqueue(order(1))
        assert run("forward", "outbox.published") == -signal.SIGKILL
        assert await ready(mq) == ["o1"]
        await rows_released(harness)
        mq.store_services.forwarder._window_of = lambda _queue: timedelta(milliseconds=1)
        assert await mq.store_services.forwarder.tick() == 1
        assert await ready(mq) == [], "it is known, so it is not published again"


async def test_what_cannot_be_published_is_refused_when_it_is_written(
    mq: MessageQueueManager, harness: StoreHarness
) -> None:
    async with mq:
        await opened(mq)
        async with transaction(harness) as connection:
            with pytest.raises(InvalidMessage, match="priority"):
                await mq.outbox(connection).enqueue_many([order(1), Message(queue="orders", priority=900)])
        assert await rows(harness.url, "SELECT * FROM outbox") == []
        with pytest.raises(InvalidSetting, match="connection"):
            await mq.outbox(object()).enqueue(order(1))


@pytest.mark.parametrize("backend", ["postgres"])
async def test_a_connection_outside_a_transaction_is_refused(mq: MessageQueueManager, harness: StoreHarness) -> None:
    async with mq:
        connection = await asyncpg.connect(harness.url)
        try:
            with pytest.raises(InvalidSetting, match="inside a transaction"):
                await mq.outbox(connection).enqueue(order(1))
        finally:
            await connection.close()


@pytest.mark.parametrize("backend", ["sqlite"])
async def test_a_connection_to_another_file_is_refused(mq: MessageQueueManager, tmp_path: Any) -> None:
    async with mq:
        connection = sqlite3.connect(tmp_path / "other.db")
        try:
            with pytest.raises(InvalidSetting, match="connection"):
                await mq.outbox(connection).enqueue(order(1))
        finally:
            connection.close()


@pytest.mark.parametrize("backend", ["sqlite"])
async def test_a_transaction_on_another_file_is_blamed_itself(mq: MessageQueueManager, tmp_path: Path) -> None:
    async with mq:
        await mq.declare("orders")
        assert mq.store is not None
        await mq.store.ping()
        with contextlib.closing(sqlite3.connect(tmp_path / "other.db")) as connection:
            connection.execute("CREATE TABLE sales (id INTEGER)")
            connection.execute("INSERT INTO sales VALUES (1)")
            with pytest.raises(InvalidSetting, match="Allowed: a connection to "):
                await mq.outbox(connection).enqueue(order(1))


@pytest.mark.parametrize("backend", ["sqlite"])
async def test_a_transaction_that_is_open_before_the_tables_are_made_is_told_at_once(
    mq: MessageQueueManager, harness: StoreHarness
) -> None:
    async with mq:
        connection = sqlite3.connect(harness.url.removeprefix("sqlite:///"))
        try:
            connection.execute("CREATE TABLE sales (id INTEGER)")
            connection.execute("INSERT INTO sales VALUES (1)")
            with pytest.raises(SchemaOutdated, match="godwit db upgrade"):
                await mq.outbox(connection).enqueue(order(1))
            connection.rollback()
            await mq.outbox(connection).enqueue(order(1))
            connection.commit()
        finally:
            connection.close()
        assert await rows(harness.url, "SELECT message_id FROM outbox") == [{"message_id": "o1"}]
