"""Pulls that wait: woken by whatever makes a message ready, and nothing is lost when they are cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from godwit.brokers.contract import Ack, Delivery, HandBack
from godwit.core.queues import FlowControl, GroupSpec
from tests.conformance.harness import LEASE, LONG, G, Harness, Q, ids_of
from tests.steal_time import calm
from tests.waiting import eventually, real_time

PATIENT = timedelta(seconds=8)
SOON_SECONDS = 4
SETTLED = timedelta(milliseconds=60)


async def woken(live: Harness, wake: Callable[[], Awaitable[object]], **options: object) -> list[str]:
    """Begin a pull that has to wait, wake it, and say what it got long before its wait was over."""
    pull = asyncio.create_task(live.pull(5, wait=PATIENT, lease=LONG, **options))  # type: ignore[arg-type]
    await real_time(SETTLED)
    assert not pull.done()
    began = calm()
    await wake()
    deliveries: list[Delivery] = await pull
    assert calm() - began < SOON_SECONDS
    return ids_of(deliveries)


async def test_a_pull_that_finds_something_does_not_wait(live: Harness) -> None:
    await live.declare()
    await live.publish("a")
    began = calm()
    assert ids_of(await live.pull(5, wait=PATIENT)) == ["a"]
    assert calm() - began < SOON_SECONDS


async def test_a_pull_returns_empty_after_its_wait(live: Harness) -> None:
    await live.declare()
    began, began_calm = time.monotonic(), calm()
    assert await live.pull(wait=timedelta(milliseconds=200)) == []
    assert time.monotonic() - began >= 0.19
    assert calm() - began_calm < SOON_SECONDS


async def test_a_pull_without_wait_returns_at_once(live: Harness) -> None:
    await live.declare()
    began = calm()
    assert await live.pull() == []
    assert calm() - began < 1


async def test_a_publish_wakes_a_waiting_pull(live: Harness) -> None:
    await live.declare()
    assert await woken(live, lambda: live.publish("a")) == ["a"]


async def test_a_publish_by_another_client_wakes_a_waiting_pull(live: Harness) -> None:
    await live.declare()
    other = await live.another()
    assert await woken(live, lambda: other.publish([live.envelope("a")])) == ["a"]


async def test_a_due_delay_wakes_a_waiting_pull_without_anybody_maintaining(live: Harness) -> None:
    await live.declare()
    await live.publish("a", due=LEASE)
    assert await woken(live, nothing) == ["a"]


async def nothing() -> None:
    """Leave it to time."""


async def test_a_message_due_later_that_is_published_meanwhile_wakes_a_waiting_pull(live: Harness) -> None:
    await live.declare()
    assert await woken(live, lambda: live.publish("a", due=LEASE)) == ["a"]


async def test_a_lease_that_runs_out_wakes_a_waiting_pull_without_anybody_maintaining(live: Harness) -> None:
    await live.declare()
    await live.publish("a")
    await live.pull_one(worker="lost")
    assert await woken(live, nothing) == ["a"]


async def test_a_short_lease_that_an_outage_moved_ends_for_a_pull_that_waits(live: Harness) -> None:
    await live.declare()
    await live.publish("a")
    await live.pull_one(worker="lost")
    assert await live.pull(5, wait=LEASE / 4) == []  # nothing of the publish is left that would wake the next pull
    await real_time(3 * LEASE)  # nobody looks: when the pull begins, an outage is seen
    began = calm()
    busy = asyncio.create_task(hold_up_the_loop())
    try:
        assert ids_of(await live.pull(5, wait=PATIENT, lease=LONG)) == ["a"]
    finally:
        busy.cancel()
    assert calm() - began < SOON_SECONDS


async def hold_up_the_loop() -> None:
    """Let every timer be late by a few milliseconds, as beside handlers that compute."""
    while True:
        time.sleep(0.005)  # noqa: ASYNC251 (that is what it is for)
        await asyncio.sleep(0.001)


async def test_a_delayed_retry_wakes_a_waiting_pull(live: Harness) -> None:
    await live.declare()
    await live.publish("a")
    held = await live.pull_one(lease=LONG)
    assert await woken(live, lambda: live.retry(held, LEASE)) == ["a"]


async def test_a_retry_and_a_hand_back_wake_a_waiting_pull(live: Harness) -> None:
    await live.declare()
    await live.publish("a", "b")
    one, two = await live.pull(2, lease=LONG)
    assert await woken(live, lambda: live.retry(one)) == ["a"]
    assert await woken(live, lambda: live.broker.settle([HandBack(two.ack_id)])) == ["b"]


async def test_a_replay_wakes_a_waiting_pull(live: Harness) -> None:
    await live.declare()
    await live.publish("a")
    await live.give_up(await live.pull_one())
    (letter,) = await live.letters()
    assert await woken(live, lambda: live.broker.dead_letters.replay([letter.id])) == ["a"]


@pytest.mark.promise(7)
async def test_an_ack_that_releases_a_key_wakes_a_waiting_pull(live: Harness) -> None:
    await live.declare(GroupSpec(name=G, message_ordering=True))
    await live.publish("a1", "a2", key="a")
    head = await live.pull_one(lease=LONG)
    assert await woken(live, lambda: live.broker.settle([Ack(head.ack_id)])) == ["a2"]


async def test_an_ack_that_frees_flow_control_wakes_a_waiting_pull(live: Harness) -> None:
    await live.declare(GroupSpec(name=G, flow_control=FlowControl(max_messages=1)))
    await live.publish("a", "b")
    held = await live.pull_one(lease=LONG)
    assert await woken(live, lambda: live.broker.settle([Ack(held.ack_id)])) == ["b"]


@pytest.mark.promise(7)
async def test_a_cancelled_head_wakes_a_pull_waiting_for_its_key(live: Harness) -> None:
    await live.declare(GroupSpec(name=G, message_ordering=True))
    await live.publish("a1", key="a", due=LONG)
    await live.publish("a2", key="a")
    assert await woken(live, lambda: live.broker.cancel(Q, live.envelope("a1").id)) == ["a2"]


async def test_messages_fed_from_dead_letters_wake_a_waiting_pull(live: Harness) -> None:
    await live.declare(queue="dead")
    await live.declare(dead_letter_queue="dead")
    await live.publish("a")
    await live.give_up(await live.pull_one())
    assert await woken(live, live.broker.maintain, queue="dead") == ["a"]


async def test_several_waiting_pulls_share_what_is_published(live: Harness) -> None:
    await live.declare()
    pulls = [asyncio.create_task(live.pull(1, wait=PATIENT, worker=f"w{n}", lease=LONG)) for n in range(5)]
    await real_time(SETTLED)
    await live.publish(*(f"m{n}" for n in range(5)))
    got = [name for deliveries in await asyncio.gather(*pulls) for name in ids_of(deliveries)]
    assert sorted(got) == [f"m{n}" for n in range(5)]


async def test_a_waiting_pull_ends_when_its_queue_is_removed(live: Harness) -> None:
    await live.declare()
    pull = asyncio.create_task(live.pull(wait=timedelta(seconds=1)))
    await real_time(SETTLED)
    await live.broker.remove(Q)
    with suppress(Exception):
        assert await pull == []


async def test_a_cancelled_pull_that_waits_takes_nothing_with_it(live: Harness) -> None:
    await live.declare()
    pulls = [asyncio.create_task(live.pull(1, wait=PATIENT, lease=LONG)) for _ in range(3)]
    await real_time(SETTLED)
    for pull in pulls:
        pull.cancel()
    await asyncio.gather(*pulls, return_exceptions=True)
    await live.publish("a")
    assert await live.ids(wait=PATIENT) == ["a"]


async def test_a_message_pulled_by_a_cancelled_call_is_not_lost(live: Harness) -> None:
    await live.declare(GroupSpec(name=G, max_crashes=None))
    ids = {f"m{n}" for n in range(20)}
    got: set[str] = set()
    pulls = [asyncio.create_task(live.pull(1, wait=PATIENT, lease=LEASE)) for _ in range(20)]
    publish = asyncio.create_task(live.publish(*sorted(ids)))
    for n, pull in enumerate(pulls):
        if n % 2:
            await asyncio.sleep(0)
        pull.cancel()
    await publish
    for result in await asyncio.gather(*pulls, return_exceptions=True):
        if isinstance(result, list):
            got.update(ids_of(result))
    for _ in range(20):
        got.update(await live.ids(wait=timedelta(milliseconds=100)))

    async def all_seen() -> bool:
        got.update(await live.ids())
        return got == ids

    await eventually(all_seen, within=timedelta(seconds=5), what="every message delivered")


@pytest.mark.parametrize("waiting", [0, 50])
async def test_a_wait_is_not_longer_for_other_waiters(live: Harness, waiting: int) -> None:
    await live.declare()
    pulls = [asyncio.create_task(live.pull(wait=timedelta(milliseconds=150))) for _ in range(waiting)]
    began = calm()
    assert await live.pull(wait=timedelta(milliseconds=150)) == []
    assert calm() - began < SOON_SECONDS
    await asyncio.gather(*pulls)
