"""The circuit breaker: shared by all processes, it stops pulling without burning attempts."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from godwit.brokers.memory import MemoryBroker
from godwit.core.clock import ManualClock, to_ms
from godwit.core.errors import CircuitOpen, InvalidSetting, QueueFull
from godwit.core.failures.breaker import Breaker, BreakerRule, BreakerState, Circuit
from godwit.core.failures.failure import Away
from godwit.core.failures.judgement import DownstreamAway
from godwit.core.failures.retry import RetryPolicy, Strategy
from godwit.core.messages.message import Message
from godwit.core.names import GroupName, QueueName
from godwit.runtime.breaker import QueueCircuitBreaker
from godwit.runtime.delivery.gate import SharedGate
from godwit.testing import in_memory, run_until_empty

RULE = BreakerRule(failure_threshold=3, reset_timeout=timedelta(seconds=30))
AGAIN = RetryPolicy(max_attempts=100, strategy=Strategy.IMMEDIATE)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(clock: ManualClock) -> MemoryBroker:
    return MemoryBroker(clock=clock)


def breaker(broker: MemoryBroker, clock: ManualClock, owner: str, rule: BreakerRule = RULE) -> QueueCircuitBreaker:
    return QueueCircuitBreaker(broker.shared, "smtp", owner=owner, rule=rule, clock=clock)


async def fail(one: QueueCircuitBreaker, *, times: int = 1, away: Away | None = Away.NETWORK) -> None:
    for _ in range(times):
        one.failed(away)
        await one.share()


async def work(one: QueueCircuitBreaker, *, times: int = 1) -> None:
    for _ in range(times):
        one.worked()
        await one.share()


async def test_enough_failures_open_it_for_everybody(broker: MemoryBroker, clock: ManualClock) -> None:
    one, other = breaker(broker, clock, "one"), breaker(broker, clock, "other")
    for _ in range(3):
        assert await one.admit() is None
        await fail(one)
    assert one.state.circuit is Circuit.OPEN
    await other.refresh()
    assert await one.admit() == await other.admit() == 0


async def test_it_opens_by_the_share_of_the_last_calls_that_failed(broker: MemoryBroker, clock: ManualClock) -> None:
    rare, often = breaker(broker, clock, "one"), breaker(broker, clock, "other")
    for _ in range(20):
        await fail(rare)
        await work(rare, times=2)
    assert rare.state.circuit is Circuit.CLOSED
    for _ in range(3):
        await work(often)
        await fail(often)
    assert often.state.circuit is Circuit.OPEN
    assert often.state.why == "3 of 5 network errors"


async def test_what_worked_before_an_outage_does_not_hide_it(broker: MemoryBroker, clock: ManualClock) -> None:
    one = breaker(broker, clock, "one")
    await work(one, times=1_000)
    await fail(one, times=3)
    assert one.state.circuit is Circuit.OPEN


async def test_a_failure_of_long_ago_does_not_count(broker: MemoryBroker, clock: ManualClock) -> None:
    one = breaker(broker, clock, "one")
    for _ in range(10):
        await fail(one, times=2)
        clock.advance(RULE.window + timedelta(seconds=1))
    assert one.state.circuit is Circuit.CLOSED


async def test_only_errors_that_speak_of_the_downstream_count(broker: MemoryBroker, clock: ManualClock) -> None:
    rule = BreakerRule(failure_threshold=3, counts=frozenset({Away.TIMEOUT}))
    one = breaker(broker, clock, "one", rule)
    await fail(one, times=50, away=None)
    await fail(one, times=50, away=Away.RATE_LIMIT)
    assert one.state.circuit is Circuit.CLOSED
    await fail(one, times=2, away=Away.TIMEOUT)
    await fail(one, away=Away.AWAY)  # what a handler says itself counts always
    assert one.state.why == "3 of 3 failed: 2 timeouts, 1 said to be away"


async def test_an_open_breaker_says_until_when_and_why() -> None:
    clock = ManualClock(to_ms(datetime(2026, 11, 19, 12, 2, 50, tzinfo=UTC)))
    one = breaker(
        MemoryBroker(clock=clock), clock, "one", BreakerRule(failure_threshold=14, reset_timeout=timedelta(seconds=30))
    )
    await fail(one)
    await work(one, times=6)
    await fail(one, times=13, away=Away.NETWORK)
    state = one.state
    assert state.text("smtp") == "open until 12:03:20 (smtp: 14 of 20 network errors)"
    assert BreakerState().text("smtp") == "closed"


async def test_after_the_reset_time_one_process_tries_one_message(broker: MemoryBroker, clock: ManualClock) -> None:
    one, other = breaker(broker, clock, "one"), breaker(broker, clock, "other")
    await fail(one, times=3)
    clock.advance(timedelta(seconds=31))
    await other.refresh()
    assert await one.admit() == 1
    assert await other.admit() == 0
    one.begun(1)
    assert await one.admit() == 0
    await work(one)
    await other.refresh()
    assert await one.admit() is None
    assert await other.admit() is None


async def test_a_failed_probe_opens_it_again(broker: MemoryBroker, clock: ManualClock) -> None:
    one = breaker(broker, clock, "one")
    await fail(one, times=3)
    clock.advance(timedelta(seconds=31))
    assert await one.admit() == 1
    one.begun(1)
    await fail(one)
    assert one.state.circuit is Circuit.OPEN
    assert await one.admit() == 0


async def test_a_probe_that_fails_for_its_own_sake_lets_another_message_try(
    broker: MemoryBroker, clock: ManualClock
) -> None:
    one = breaker(broker, clock, "one")
    await fail(one, times=3)
    clock.advance(timedelta(seconds=31))
    for _ in range(5):
        assert await one.admit() == 1
        one.begun(1)
        await fail(one, away=None)
    half_open = one.state
    assert half_open.circuit is Circuit.HALF_OPEN
    await work(one)
    assert one.state.circuit is Circuit.CLOSED


async def test_a_prober_that_fell_silent_is_followed_by_another(broker: MemoryBroker, clock: ManualClock) -> None:
    one, other = breaker(broker, clock, "one"), breaker(broker, clock, "other")
    await fail(one, times=3)
    clock.advance(timedelta(seconds=31))
    assert await one.admit() == 1
    clock.advance(timedelta(seconds=31))
    await other.refresh()
    assert await other.admit() == 1


async def test_a_state_that_nobody_can_read_holds_nothing_back(broker: MemoryBroker, clock: ManualClock) -> None:
    one = breaker(broker, clock, "one")
    await broker.shared.put("gate/breaker/smtp", b"\xff{", expected=None)
    await one.refresh()
    assert await one.admit() is None
    await fail(one, times=3)
    assert one.state.circuit is Circuit.OPEN


async def test_consumers_that_name_the_same_downstream_share_its_breaker(
    broker: MemoryBroker, clock: ManualClock
) -> None:
    mail, news, other = ((QueueName(name), GroupName("default")) for name in ("mail", "news", "other"))
    smtp = Breaker("smtp", failure_threshold=3)
    gate = SharedGate(
        broker.shared, [mail, news, other], owner="w", rule=RULE, clock=clock, breaker_of={mail: smtp, news: smtp}
    )
    await fail(gate.breakers[mail], times=3)
    assert [await gate.admit(place, 10) for place in (mail, news, other)] == [0, 0, 10]
    assert gate.texts() == dict.fromkeys((mail, news), gate.breakers[mail].state.text("smtp"))
    with pytest.raises(InvalidSetting, match="same rules"):
        SharedGate(
            broker.shared,
            [mail, news],
            owner="w",
            rule=RULE,
            clock=clock,
            breaker_of={mail: smtp, news: Breaker("smtp")},
        )


async def test_execute_refuses_while_it_is_open_and_says_for_how_long(clock: ManualClock) -> None:
    local = QueueCircuitBreaker(None, "publish", owner="me", rule=RULE, clock=clock)

    async def fails() -> None:
        raise ConnectionError("gone")

    for _ in range(3):
        with pytest.raises(ConnectionError):
            await local.execute(fails)
    with pytest.raises(CircuitOpen, match="Circuit breaker is open - queue unavailable") as refused:
        await local.execute(fails)
    assert refused.value.seconds == 30


async def test_errors_that_say_nothing_about_the_broker_do_not_count(clock: ManualClock) -> None:
    local = QueueCircuitBreaker(None, "publish", owner="me", rule=RULE, clock=clock)

    async def full() -> None:
        raise QueueFull("q", "g", "max_size", 1)

    for _ in range(5):
        with pytest.raises(QueueFull):
            await local.execute(full, failure=ConnectionError)
    assert local.state.circuit is Circuit.CLOSED


async def test_a_refused_message_does_not_keep_the_probe_of_an_open_breaker(clock: ManualClock) -> None:
    local = QueueCircuitBreaker(None, "publish", owner="me", rule=RULE, clock=clock)
    local.failed()
    await fail(local, times=2)
    clock.advance(timedelta(seconds=31))

    async def full() -> None:
        raise QueueFull("q", "g", "max_size", 1)

    async def works() -> int:
        return 1

    for _ in range(3):
        with pytest.raises(QueueFull):
            await local.execute(full, failure=ConnectionError)
    assert await local.execute(works, failure=ConnectionError) == 1
    assert local.state.circuit is Circuit.CLOSED


async def test_an_open_breaker_stops_pulling_and_burns_no_attempts() -> None:
    mq = in_memory()
    tries: list[tuple[int, int]] = []

    @mq.consumer("q", retry_policy=AGAIN, breaker=Breaker("smtp"))
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


async def test_a_probe_takes_a_fresh_message_before_those_that_came_back() -> None:
    mq = in_memory()
    bad = {0, 1, 2, 3, 4}
    done: list[tuple[int, int]] = []

    @mq.consumer("q", concurrency=5, breaker=Breaker("smtp"), retry_policy=RetryPolicy(strategy=Strategy.IMMEDIATE))
    async def handler(message: Message) -> None:
        if message.payload in bad:
            raise TimeoutError("the mail server hangs at this very mail")
        done.append((message.payload, mq.clock.now_ms()))

    async with mq:
        started = mq.clock.now_ms()
        await mq.enqueue_many([Message(queue="q", payload=n) for n in range(50)])
        ran = await run_until_empty(mq)
    assert done[0][0] == 5
    assert done[0][1] - started == 30_000, "the five bad ones opened it, and a good one closed it at the first try"
    assert {payload for payload, _ in done} == set(range(5, 50))
    assert ran.dead == len(bad)


async def test_a_failure_while_the_downstream_is_known_to_be_away_is_not_the_messages() -> None:
    mq = in_memory()
    outage_ms = 600_000

    @mq.consumer("q", concurrency=1, breaker=Breaker("smtp", failure_threshold=2), retry_policy=RetryPolicy())
    async def handler(_: Message) -> None:
        if mq.clock.now_ms() < started + outage_ms:
            raise ConnectionError("away")

    async with mq:
        started = mq.clock.now_ms()
        await mq.enqueue_many([Message(queue="q", payload=n) for n in range(3)])
        ran = await run_until_empty(mq)
    assert ran.dead == 0
    assert ran.stats[0].groups[0].depth == 0
    assert ran.took < timedelta(milliseconds=outage_ms + 61_000)


async def test_without_a_breaker_only_a_handlers_own_word_stops_pulling() -> None:
    mq = in_memory()
    errors: list[type[Exception]] = [ConnectionError] * 50 + [DownstreamAway] * 5
    seen: list[int] = []

    @mq.consumer("q", concurrency=1, retry_policy=AGAIN)
    async def handler(_: Message) -> None:
        seen.append(mq.clock.now_ms())
        if errors:
            raise errors.pop(0)("gone")

    async with mq:
        await mq.enqueue_many([Message(queue="q", payload=n) for n in range(10)])
        await run_until_empty(mq)
    assert {at - seen[0] for at in seen[:55]} == {0}
    assert seen[55] - seen[0] == 30_000


@pytest.mark.parametrize(
    "change",
    [
        {"failure_threshold": 0},
        {"failure_rate": 0},
        {"failure_rate": 1.1},
        {"calls": 0},
        {"window": 0},
        {"reset_timeout": timedelta(0)},
        {"reset_timeout": -1},
        {"half_open_probes": 0},
        {"counts": "timeout"},
        {"counts": ["teapot"]},
    ],
    ids=str,
)
def test_impossible_rules_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        BreakerRule(**change)
    with pytest.raises(InvalidSetting):
        Breaker("smtp", **change)


@pytest.mark.parametrize("name", ["", "a#b", "x" * 1_000, "a b", None, 5])
def test_impossible_names_of_downstreams_are_refused(name: Any) -> None:
    with pytest.raises(InvalidSetting):
        Breaker(name)


def test_what_a_breaker_leaves_out_is_as_configured() -> None:
    configured = BreakerRule(failure_threshold=7, reset_timeout=timedelta(minutes=2))
    rule = Breaker("smtp", reset_timeout=5, counts=["429"]).rule(configured)
    assert (rule.failure_threshold, rule.reset_timeout) == (7, timedelta(seconds=5))
    assert rule.counts == {Away.RATE_LIMIT, Away.AWAY}
    assert pickle.loads(pickle.dumps(Breaker("smtp"))) == Breaker("smtp")
