"""What `godwit.testing` gives to the tests of applications: it notices what is there, and what is not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from godwit import Message, Permanent, RetryPolicy
from godwit.core.clock import from_ms
from godwit.testing import assert_nothing_published, assert_published, in_memory, published, run_until_empty

HOUR = timedelta(hours=1)


async def test_it_runs_the_consumers_until_all_is_done_and_says_what_became_of_it() -> None:
    mq = in_memory()
    handled: list[object] = []

    @mq.consumer("orders")
    async def charge(message: Message) -> None:
        handled.append(message.payload)
        if message.payload == "bad":
            raise Permanent("no such card")
        await mq.enqueue(Message(queue="mails", type="receipt", payload=message.payload))

    @mq.consumer("mails")
    async def send(message: Message) -> None:
        handled.append(("mail", message.payload))

    async with mq:
        await mq.enqueue_many(Message(queue="orders", payload=one) for one in ("good", "bad"))
        ran = await run_until_empty(mq)
    assert sorted(map(str, handled)) == ["('mail', 'good')", "bad", "good"]
    assert (ran.handled, ran.dead, ran.took) == (3, 1, timedelta(0))
    assert [one.payload for one in published(mq, "mails")] == ["good"]
    assert len(published(mq)) == 3


@pytest.mark.parametrize(("longest", "handled"), [(2 * HOUR, 1), (HOUR / 2, 0)])
async def test_delays_are_reached_by_the_managers_clock_and_not_further_than_asked(
    longest: timedelta, handled: int
) -> None:
    mq = in_memory()

    @mq.consumer("orders")
    async def charge(_: Message) -> None:
        """Do nothing."""

    async with mq:
        began = from_ms(mq.clock.now_ms())
        await mq.enqueue(Message(queue="orders"), scheduled_at=began + HOUR)
        ran = await run_until_empty(mq, longest=longest)
        assert ran.handled == handled
        assert from_ms(mq.clock.now_ms()) - began == ran.took == HOUR * handled


async def test_assertions_pass_on_what_was_published_and_show_it_otherwise() -> None:
    mq = in_memory()
    async with mq:
        assert_nothing_published(mq)
        with pytest.raises(AssertionError, match=r"expected a message in 'orders' with {}, found 0 among:\n  nothing"):
            assert_published(mq, "orders")
        await mq.broker.declare(mq.settings.queue("orders").spec)
        await mq.enqueue(Message(queue="orders", payload={"id": 7}))
        await mq.enqueue(Message(queue="orders", payload={"id": 8}))
    assert_published(mq, "orders", payload={"id": 7})
    assert_published(mq, "orders", count=2)
    assert_nothing_published(mq, "mails")
    with pytest.raises(AssertionError, match=r"expected 1 messages in 'orders' with {}, found 2 among"):
        assert_published(mq, "orders", count=1)
    with pytest.raises(AssertionError, match=r"found 0 among:\n.*'id': 7"):
        assert_published(mq, "orders", payload={"id": 9})
    with pytest.raises(AssertionError, match="expected nothing to be published, found 2, the first"):
        assert_nothing_published(mq)


async def test_the_same_seed_gives_the_same_jitter() -> None:
    async def took(seed: int) -> timedelta:
        mq = in_memory(seed=seed)

        @mq.consumer("orders", retry_policy=RetryPolicy(jitter=0.1))
        async def charge(_: Message) -> None:
            raise ConnectionError("try later")

        async with mq:
            await mq.enqueue(Message(queue="orders"))
            return (await run_until_empty(mq)).took

    assert await took(1) == await took(1) != await took(2)
