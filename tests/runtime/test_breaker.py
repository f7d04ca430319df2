"""The circuit breaker: shared by all processes, it stops pulling without burning attempts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from godwit.brokers.memory import MemoryBroker
from godwit.core.breaker import BreakerRule, Circuit
from godwit.core.clock import ManualClock
from godwit.core.errors import CircuitOpen, InvalidSetting, QueueFull
from godwit.core.message import Message
from godwit.core.retry import RetryPolicy, Strategy
from godwit.runtime.breaker import Breaker
from godwit.testing import in_memory, run_until_empty

RULE = BreakerRule(failure_threshold=3, reset_timeout=timedelta(seconds=30))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(clock: ManualClock) -> MemoryBroker:
    return MemoryBroker(clock=clock)


def breaker(broker: MemoryBroker, clock: ManualClock, owner: str) -> Breaker:
    return Breaker(broker.shared, "q#g", owner=owner, rule=RULE, clock=clock)


async def test_enough_failures_in_a_row_open_it_for_everybody(broker: MemoryBroker, clock: ManualClock) -> None:
    one, other = breaker(broker, clock, "one"), breaker(broker, clock, "other")
    for _ in range(3):
        assert await one.admit() is None
        await one.failed()
    assert one.state.circuit is Circuit.OPEN
    await other.refresh()
    assert await one.admit() == await other.admit() == 0


async def test_a_success_in_between_starts_the_count_again(broker: MemoryBroker, clock: ManualClock) -> None:
    one = breaker(broker, clock, "one")
    for _ in range(5):
        await one.failed()
        await one.failed()
        await one.succeeded()
    assert one.state.circuit is Circuit.CLOSED


async def test_after_the_reset_time_one_process_tries_one_message(broker: MemoryBroker, clock: ManualClock) -> None:
    one, other = breaker(broker, clock, "one"), breaker(broker, clock, "other")
    for _ in range(3):
        await one.failed()
    clock.advance(timedelta(seconds=31))
    await other.refresh()
    assert await one.admit() == 1
    assert await other.admit() == 0
    one.begun(1)
    assert await one.admit() == 0
    await one.succeeded()
    await other.refresh()
    assert await one.admit() is None
    assert await other.admit() is None


async def test_a_failed_probe_opens_it_again(broker: MemoryBroker, clock: ManualClock) -> None:
    one = breaker(broker, clock, "one")
    for _ in range(3):
        await one.failed()
    clock.advance(timedelta(seconds=31))
    assert await one.admit() == 1
    one.begun(1)
    await one.failed()
    assert one.state.circuit is Circuit.OPEN
    assert await one.admit() == 0


async def test_a_prober_that_fell_silent_is_followed_by_another(broker: MemoryBroker, clock: ManualClock) -> None:
    one, other = breaker(broker, clock, "one"), breaker(broker, clock, "other")
    for _ in range(3):
        await one.failed()
    clock.advance(timedelta(seconds=31))
    assert await one.admit() == 1
    clock.advance(timedelta(seconds=31))
    await other.refresh()
    assert await other.admit() == 1


async def test_execute_refuses_while_it_is_open_and_says_for_how_long(clock: ManualClock) -> None:
    local = Breaker(None, "publish", owner="me", rule=RULE, clock=clock)

    async def fails() -> None:
        raise ConnectionError("gone")

    for _ in range(3):
        with pytest.raises(ConnectionError):
            await local.execute(fails)
    with pytest.raises(CircuitOpen, match="Circuit breaker is open - queue unavailable") as refused:
        await local.execute(fails)
    assert refused.value.seconds == 30


async def test_errors_that_say_nothing_about_the_broker_do_not_count(clock: ManualClock) -> None:
    local = Breaker(None, "publish", owner="me", rule=RULE, clock=clock)

    async def full() -> None:
        raise QueueFull("q", "g", "max_size", 1)

    for _ in range(5):
        with pytest.raises(QueueFull):
            await local.execute(full, failure=ConnectionError)
    assert local.state.circuit is Circuit.CLOSED


async def test_an_open_breaker_stops_pulling_and_burns_no_attempts() -> None:
    mq = in_memory()
    tries: list[tuple[int, int]] = []

    @mq.consumer("q", retry_policy=RetryPolicy(max_attempts=100, strategy=Strategy.IMMEDIATE))
    async def handler(message: Message) -> None:
        tries.append((message.payload, mq.clock.now_ms()))
        if len(tries) < 7:
            raise ConnectionError("the service is down")

    async with mq:
        await mq.enqueue_many([Message(queue="q", payload=n) for n in range(20)])
        ran = await run_until_empty(mq)
    started = tries[0][1]
    waits = [(at - started) // 1000 for _, at in tries]
    # Five failures open it for 30 s; the probe fails, and the next after another 30 s succeeds.
    assert waits[:5] == [0] * 5
    assert 30 in waits
    assert ran.handled == 26
    assert ran.dead == 0


@pytest.mark.parametrize("change", [{"failure_threshold": 0}, {"reset_timeout": timedelta(0)}, {"half_open_probes": 0}])
def test_impossible_rules_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidSetting):
        BreakerRule(**change)  # type: ignore[arg-type]
