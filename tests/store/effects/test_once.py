"""Effects that happen once."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from godwit.brokers.memory import MemoryBroker
from godwit.core.errors import EffectHeld, InvalidSetting, StoreRequired
from godwit.core.failures.retry import RetryPolicy, Strategy
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.messages.message import Message
from godwit.manager import MessageQueueManager
from godwit.runtime.effects import once
from tests.hostile import OddError
from tests.store.conformance.harness import StoreHarness
from tests.store.effects.conftest import Run
from tests.store.effects.process import until_empty
from tests.store.tables import rows
from tests.waiting import eventually

AT_ONCE = RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=3)


def deep(levels: int) -> list[Any]:
    """Return a list in lists."""
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


class Unshowable(dict[str, Any]):
    """A dict that does not tell what is in it."""

    def items(self) -> Any:
        """Raise an error of no known kind."""
        raise OddError("no items")


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


@pytest.mark.parametrize("ends_well", [True, False])
async def test_a_plain_function_beyond_its_time_keeps_its_key_until_it_ends(
    mq: MessageQueueManager, monkeypatch: pytest.MonkeyPatch, *, ends_well: bool
) -> None:
    monkeypatch.setattr(once, "_LONGEST_WAIT", timedelta(milliseconds=50))
    release, begun = threading.Event(), list[str]()

    @mq.consumer("orders", once=lambda _: "7", time_limit=0.2, lease=1, retry_policy=AT_ONCE)
    def handle(message: Message) -> str:
        begun.append(message.id)
        if len(begun) == 1:
            release.wait()
            if not ends_well:
                raise RuntimeError("card refused")
        return "receipt"

    async with mq:
        ids = await mq.enqueue_many([Message(queue="orders") for _ in range(2)])
        worker = mq.worker()
        work = asyncio.create_task(worker.run())
        try:
            # The first is tried again after its time limit, and both wait for the thread that runs on.
            await eventually(lambda: postponed(mq), within=timedelta(seconds=20))
            assert len(begun) == 1
            release.set()
            await eventually(lambda: done(mq, ids), within=timedelta(seconds=20))
        finally:
            release.set()
            worker.stop()
            await work
        assert len(begun) == (1 if ends_well else 2)


async def postponed(mq: MessageQueueManager) -> bool:
    """Say whether each of two messages was postponed more than once."""
    found = Counter[str]()
    for shard in await mq.broker.journal.shards():
        for chunk in await mq.broker.journal.read(shard, limit=1_000):
            rows_ = rows_of(decode_chunk(chunk), shard)
            found.update(row["message_id"] for row in rows_ if row["event"] == "postponed")
    return len(found) == 2 and min(found.values()) > 1


async def done(mq: MessageQueueManager, ids: list[str]) -> bool:
    """Say whether messages are done with the result of one effect."""
    statuses = [await mq.status(message_id) for message_id in ids]
    return all(one is not None and one.groups[0].result == "receipt" for one in statuses)


@pytest.mark.parametrize(
    "result",
    ["a\0b", {"a\0": "\0"}, "\ud800", "x" * 5_000, [float("nan")], object(), deep(1_500), deep(100_000), Unshowable()],
    ids=type,
)
async def test_an_effect_whose_result_cannot_be_kept_is_not_made_again(mq: MessageQueueManager, result: object) -> None:
    made = []
    async with mq:
        for _ in range(2):
            async with mq.once("charge:7") as first:
                if first:
                    made.append(1)
                    first.result = result
    assert made == [1]
