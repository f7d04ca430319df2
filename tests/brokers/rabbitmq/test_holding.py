"""Delays by binary hold levels: the arithmetic for every delay, and the clock for short ones."""

from __future__ import annotations

import time
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from godwit.brokers.contract import Ack, Nack
from godwit.brokers.rabbitmq.holding import LEVELS, LONGEST_MS, UNIT_MS, hold_address, level_name, levels
from tests.conformance.harness import LONG, Harness

DAY_MS = 86_400_000
WAIT = timedelta(seconds=6)


def held(exchange: str, key: str) -> int:
    """Follow a message through the levels as their bindings say, and return how long they hold it."""
    *bits, mark = key.split(".")
    assert (len(bits), mark) == (LEVELS, "mark")
    level, total = int(exchange.rpartition(".")[2]), 0
    while level >= 0:
        if bits[LEVELS - 1 - level] == "1":
            total += UNIT_MS << level
        level -= 1
    return total


@given(st.integers(100, 30 * DAY_MS))
def test_any_delay_from_100_ms_to_30_days_is_right_within_a_second_or_2_percent_and_never_early(delay_ms: int) -> None:
    total = held(*hold_address(delay_ms, "mark"))
    assert delay_ms <= total <= delay_ms + max(1_000, delay_ms // 50)


@pytest.mark.parametrize("seconds", [2, 4, 8, 16, 32])
def test_the_retry_schedule_is_held_to_the_millisecond(seconds: int) -> None:
    assert held(*hold_address(seconds * 1_000, "mark")) == seconds * 1_000


def test_a_message_enters_at_its_highest_level_so_that_no_exchange_is_passed_for_nothing() -> None:
    exchange, key = hold_address(UNIT_MS * 5, "mark")
    assert exchange == level_name(2)
    assert key.startswith("0." * (LEVELS - 3) + "1.0.1.")


def test_the_longest_delay_of_the_levels_is_above_30_days() -> None:
    assert LONGEST_MS > 30 * DAY_MS
    assert held(*hold_address(LONGEST_MS * 2, "mark")) <= LONGEST_MS


def test_levels_are_declared_from_below_so_that_none_leads_nowhere() -> None:
    queues = [frame for frame in levels() if isinstance(frame, commands.Queue.Declare)]
    arguments: list[dict[str, Any]] = [dict(frame.arguments or {}) for frame in queues]
    ttls = [one["x-message-ttl"] for one in arguments]
    assert ttls == [UNIT_MS << level for level in range(LEVELS)]
    assert [one["x-dead-letter-exchange"] for one in arguments[1:]] == [frame.queue for frame in queues[:-1]]


async def test_a_short_delay_does_not_wait_behind_a_long_one(rabbit: Harness) -> None:
    await rabbit.declare()
    await rabbit.publish("long", due=timedelta(seconds=4))
    await rabbit.publish("short", due=timedelta(milliseconds=500))
    began = time.monotonic()
    (delivery,) = await rabbit.pull(5, wait=WAIT, lease=LONG)
    assert delivery.message_id == "short"
    assert 0.45 <= time.monotonic() - began < 3
    (delivery,) = await rabbit.pull(5, wait=WAIT, lease=LONG)
    assert delivery.message_id == "long"
    assert 3.9 <= time.monotonic() - began < 5.5


async def test_real_delays_end_in_their_order_within_a_second(rabbit: Harness) -> None:
    await rabbit.declare()
    delays = (100, 250, 777, 1_500, 2_000)
    due = {}
    for delay_ms in reversed(delays):
        due[str(delay_ms)] = rabbit.now_ms + delay_ms
        await rabbit.publish(str(delay_ms), due=timedelta(milliseconds=delay_ms))
    late: dict[str, int] = {}
    while len(late) < len(delays):
        for delivery in await rabbit.pull(5, wait=WAIT, lease=LONG):
            late[delivery.message_id] = rabbit.now_ms - due[delivery.message_id]
            await rabbit.broker.settle([Ack(delivery.ack_id)])
    assert list(late) == [str(delay_ms) for delay_ms in delays]
    assert all(-50 <= one <= 1_000 for one in late.values()), late


async def test_the_retry_schedule_of_2_4_8_seconds_runs_for_real_at_a_tenth_of_its_length(rabbit: Harness) -> None:
    await rabbit.declare()
    await rabbit.publish("a")
    times = []
    for delay_ms in (200, 400, 800, 1_600, 0):
        (delivery,) = await rabbit.pull(1, wait=WAIT, lease=LONG)
        times.append(time.monotonic())
        await rabbit.broker.settle([Nack(delivery.ack_id, timedelta(milliseconds=delay_ms))])
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert all(want - 0.05 <= gap <= want + 1 for want, gap in zip((0.2, 0.4, 0.8, 1.6), gaps, strict=True)), gaps


async def test_a_delay_outlives_the_broker_that_began_it(rabbit: Harness, tmp_path: Path) -> None:
    await rabbit.declare()
    await rabbit.publish("a", due=timedelta(seconds=1))
    await rabbit.restart()
    assert await rabbit.pull() == []
    assert await rabbit.ids(wait=WAIT) == ["a"]
