"""Effects that happen once."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from godwit.brokers.memory import MemoryBroker
from godwit.core.errors import EffectHeld, InvalidSetting, StoreRequired
from godwit.core.messages.message import Message
from godwit.manager import MessageQueueManager
from tests.store.conformance.harness import StoreHarness
from tests.store.effects.conftest import Run
from tests.store.effects.process import until_empty
from tests.store.tables import rows


async def test_an_effect_is_made_once_and_its_result_kept(mq: MessageQueueManager) -> None:
    made = []
    async with mq:
        for _ in range(3):
            async with mq.once("charge:7") as first:
                if first:
                    made.append(1)
                    first.result = {"receipt": 1}
                assert first.result == {"receipt": 1}
    assert made == [1]


async def test_an_effect_that_failed_is_made_again(mq: MessageQueueManager) -> None:
    async with mq:
        with pytest.raises(RuntimeError, match="card refused"):
            async with mq.once("charge:7"):
                raise RuntimeError("card refused")
        async with mq.once("charge:7") as first:
            assert first


async def test_while_somebody_makes_it_others_are_told_to_wait(mq: MessageQueueManager) -> None:
    async with mq:
        async with mq.once("charge:7", hold=timedelta(minutes=1)):
            with pytest.raises(EffectHeld) as held:
                await mq.once("charge:7").__aenter__()
            assert 0 < held.value.seconds <= 60
        async with mq.once("charge:7") as second:
            assert not second


async def test_a_handler_with_once_makes_the_effect_of_two_messages_with_one_key_once(mq: MessageQueueManager) -> None:
    made: list[str] = []

    @mq.consumer("orders", once=lambda message: message.payload["order"])
    def handle(message: Message) -> str:
        made.append(message.id)
        return "receipt"

    async with mq:
        ids = await mq.enqueue_many([Message(queue="orders", payload={"order": "7"}) for _ in range(2)])
        await until_empty(mq)
        assert len(made) == 1
        for message_id in ids:
            status = await mq.status(message_id)
            assert status is not None
            assert (status.status, status.groups[0].result) == ("completed", "receipt")


async def test_killed_between_key_and_ack_the_effect_is_not_made_again(
    mq: MessageQueueManager, run: Run, tmp_path: Path
) -> None:
    async with mq:
        await mq.broker.declare(mq.settings.queue("orders").spec)
        await mq.enqueue(Message(queue="orders", payload={"order": 7}))
        # The commit that acks is the first durable step after the key was marked done.
        assert run("charge", "sqlite.settle") == -signal.SIGKILL
        assert run("charge") == 0
    assert (tmp_path / "broker.db.effects").read_text().split() == ["7"]


async def test_killed_right_after_the_effect_it_is_made_again_as_documented(
    mq: MessageQueueManager, run: Run, tmp_path: Path
) -> None:
    async with mq:
        await mq.broker.declare(mq.settings.queue("orders").spec)
        await mq.enqueue(Message(queue="orders", payload={"order": 7}))
        assert run("charge", "test.made") == -signal.SIGKILL
        assert run("charge") == 0, "the same message gets its own claim again at once"
    assert (tmp_path / "broker.db.effects").read_text().split() == ["7", "7"]


@pytest.mark.parametrize("backend", ["postgres"])
async def test_with_effect_and_key_in_one_transaction_the_window_is_zero(
    mq: MessageQueueManager, run: Run, harness: StoreHarness
) -> None:
    connection = await asyncpg.connect(harness.url)
    await connection.execute("CREATE TABLE effects (order_id INTEGER)")
    await connection.close()
    async with mq:
        await mq.broker.declare(mq.settings.queue("orders").spec)
        await mq.enqueue_many([Message(queue="orders", payload={"order": number}) for number in (1, 2)])
        assert run("book", "test.uncommitted") == -signal.SIGKILL
        assert await rows(harness.url, "SELECT * FROM effects") == []
        assert run("book", "test.committed") == -signal.SIGKILL
        assert run("book") == 0
    assert sorted(row["order_id"] for row in await rows(harness.url, "SELECT * FROM effects")) == [1, 2]


@pytest.mark.parametrize("backend", ["postgres"])
async def test_two_transactions_at_once_make_one_effect(mq: MessageQueueManager, harness: StoreHarness) -> None:
    one, other = await asyncpg.connect(harness.url), await asyncpg.connect(harness.url)
    try:
        async with mq, one.transaction():
            async with mq.once("key", connection=one) as first:
                assert first

            async def second() -> bool:
                async with other.transaction(), mq.once("key", connection=other) as turn:
                    return bool(turn)

            waiting = asyncio.create_task(second())
            await asyncio.sleep(0)
        assert await waiting is False
    finally:
        await one.close()
        await other.close()


async def test_bad_input_is_refused(mq: MessageQueueManager) -> None:
    for key in ("", "x" * 513, "a\0b"):
        with pytest.raises(InvalidSetting, match="key"):
            mq.once(key)
    with pytest.raises(InvalidSetting, match="ttl"):
        mq.once("key", ttl=timedelta(0))
    with pytest.raises(InvalidSetting, match="batch"):
        mq.consumer("orders", batch=5, once=lambda _message: "key")


def test_without_a_store_a_consumer_with_once_is_refused_at_once() -> None:
    with pytest.raises(StoreRequired, match="once"):
        MessageQueueManager(MemoryBroker()).consumer("orders", once=lambda _message: "key")
