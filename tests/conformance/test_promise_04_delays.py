"""Promise 4: a retry with a delay is ready again after the delay, whatever restarts meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest

from godwit.core.clock import milliseconds
from tests.conformance.harness import LEASE, LONG, MOMENT, Harness, ids_of

pytestmark = pytest.mark.promise(4)


async def test_a_retried_message_is_ready_again_after_its_delay_and_not_before(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.retry(await harness.pull_one(), LEASE)
    assert (await harness.stats()).delayed == 1
    await harness.let_pass(LEASE / 2)
    assert await harness.pull() == []
    await harness.let_pass(LEASE / 2 + MOMENT)
    assert ids_of(await harness.pull()) == ["a"]


async def test_a_retry_without_delay_is_ready_at_once(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.retry(await harness.pull_one())
    assert (await harness.stats()).ready == 1
    assert ids_of(await harness.pull()) == ["a"]


async def test_a_delay_ends_without_anybody_maintaining(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.retry(await harness.pull_one(), LEASE)
    await harness.outage(LEASE + MOMENT)
    assert ids_of(await harness.pull()) == ["a"]


async def test_delays_survive_a_restart(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.publish("b", due=LEASE * 2)
    await harness.retry(await harness.pull_one(), LEASE * 2)
    await harness.restart()
    assert await harness.pull(5) == []
    assert (await harness.stats()).delayed == 2
    await harness.let_pass(LEASE * 2 + MOMENT)
    assert ids_of(await harness.pull(5)) == ["a", "b"]


async def test_a_message_due_later_is_not_delivered_before(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("later", due=LEASE)
    await harness.publish("now")
    assert await harness.ids() == ["now"]
    await harness.let_pass(LEASE + MOMENT)
    assert await harness.ids() == ["later"]


async def test_a_message_due_in_the_past_is_ready_at_once(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", due=-LEASE)
    assert await harness.ids() == ["a"]


async def test_delays_end_in_the_order_they_are_due(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("third", due=LEASE * 3)
    await harness.publish("first", due=LEASE)
    await harness.publish("second", due=LEASE * 2)
    await harness.outage(LEASE * 4)
    assert await harness.ids() == ["first", "second", "third"]


async def test_a_delivery_says_since_when_it_was_ready(harness: Harness) -> None:
    await harness.declare()
    before_ms = harness.now_ms
    await harness.publish("a", due=LEASE)
    after_ms = harness.now_ms
    await harness.let_pass(LEASE * 2)
    assert before_ms <= (await harness.pull_one()).ready_at_ms - milliseconds(LEASE) <= after_ms


async def test_a_delayed_message_of_one_group_is_ready_in_the_others(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish("a")
    await harness.retry(await harness.pull_one(group="billing"), LONG)
    assert await harness.ids(group="mail") == ["a"]
    assert await harness.ids(group="billing") == []


async def test_a_retry_of_a_millisecond_is_a_delay_too(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.retry(await harness.pull_one(), timedelta(milliseconds=1))
    await harness.let_pass(MOMENT)
    assert await harness.ids() == ["a"]
