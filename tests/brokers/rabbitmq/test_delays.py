"""Delays by binary hold levels: the arithmetic for every delay, and the clock for those up to a minute."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from godwit.brokers.contract import Ack, Nack
from godwit.brokers.rabbitmq.layout.delays import LEVELS, LONGEST_MS, UNIT_MS, hold_address, level_name, levels
from godwit.brokers.rabbitmq.ledger.pull import EARLY_MS
from tests.conformance.harness import LONG, Harness

DAY_MS = 86_400_000
WAIT = timedelta(seconds=70)


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


async def test_real_delays_and_the_retry_schedule_are_right_within_a_second_or_2_percent(
    rabbit: Harness, soak: bool
) -> None:
    """All at once: 500 ms behind 4 s in the same levels, and a message that fails again and again.

    Up to 8 s here; `--hypothesis-profile=soak` goes to 60 s and through the whole schedule.
    """
    await rabbit.declare("delayed", "retried")
    retries = (2, 4, 8, 16, 32) if soak else (2, 4)
    delays = (60_000,) * soak + (8_000, 4_000, 2_000, 1_500, 777, 500, 250, 100)
    late, failed = await asyncio.gather(lateness(rabbit, delays), retried(rabbit, retries))
    assert list(late) == sorted(delays), "the shorter comes first"
    for delay_ms, late_ms in {**late, **failed}.items():
        assert -EARLY_MS <= late_ms <= max(1_000, delay_ms // 50), (late, failed)


async def lateness(rabbit: Harness, delays: Sequence[int]) -> dict[int, int]:
    """Publish messages, the latest first; return by delay how late each came, in the order they came."""
    due = {}
    for delay_ms in delays:
        due[delay_ms] = rabbit.now_ms + delay_ms
        await rabbit.publish(str(delay_ms), due=timedelta(milliseconds=delay_ms), group="delayed")
    late: dict[int, int] = {}
    while len(late) < len(delays):
        for delivery in await rabbit.pull(5, wait=WAIT, lease=LONG, group="delayed"):
            delay_ms = int(delivery.message_id)
            late[delay_ms] = rabbit.now_ms - due[delay_ms]
            await rabbit.broker.settle([Ack(delivery.ack_id)])
    return late


async def retried(rabbit: Harness, schedule: Sequence[int]) -> dict[int, int]:
    """Fail a message with these seconds to wait; return by wait in milliseconds how late it came back."""
    await rabbit.publish("again", group="retried")
    (delivery,) = await rabbit.pull(1, wait=WAIT, lease=LONG, group="retried")
    late = {}
    for number, seconds in enumerate(schedule, 1):
        due = rabbit.now_ms + seconds * 1_000
        await rabbit.broker.settle([Nack(delivery.ack_id, timedelta(seconds=seconds))])
        (delivery,) = await rabbit.pull(1, wait=WAIT, lease=LONG, group="retried")
        late[seconds * 1_000] = rabbit.now_ms - due
        assert (delivery.attempt, delivery.failures) == (number + 1, number)
    await rabbit.broker.settle([Ack(delivery.ack_id)])
    return late


async def test_a_delay_outlives_the_broker_that_began_it(rabbit: Harness, tmp_path: Path) -> None:
    await rabbit.declare()
    await rabbit.publish("a", due=timedelta(seconds=1))
    await rabbit.restart()
    assert await rabbit.pull() == []
    assert await rabbit.ids(wait=WAIT) == ["a"]
