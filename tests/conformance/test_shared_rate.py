"""Many workers keep one rate together through the values that a broker shares."""

from __future__ import annotations

from datetime import timedelta
from random import Random

from godwit.brokers.contract import Broker
from godwit.core.clock import ManualClock
from godwit.core.names import GroupName, QueueName
from godwit.core.rate import Rate
from godwit.runtime.delivery.rate_limiter import RateLimiter
from tests.conformance.harness import Harness

PLACE = (QueueName("mail"), GroupName("senders"))
RATE = Rate("100/s", burst=20)
SECONDS = 3
WORKERS = 20
STEP = timedelta(milliseconds=10)


def limiter(broker: Broker, clock: ManualClock, number: int) -> RateLimiter:
    return RateLimiter(broker.shared, RATE, name="mail", places=[PLACE], clock=clock, random=Random(number))


def most_beyond_the_rate(begun: list[tuple[int, int]]) -> float:
    """Return by how many messages the busiest stretch of time was beyond the rate."""
    return max(
        sum(count for _, count in begun[first : last + 1]) - (begun[last][0] - begun[first][0]) / RATE.interval_ms
        for first in range(len(begun))
        for last in range(first, len(begun))
    )


async def test_twenty_workers_keep_one_rate_also_when_some_die_with_their_tokens(harness: Harness) -> None:
    clock, random, other = ManualClock(), Random(7), await harness.another()
    workers = [limiter(broker, clock, number) for number, broker in enumerate([harness.broker, other] * (WORKERS // 2))]
    begun: list[tuple[int, int]] = []
    lost = 0
    for step in range(SECONDS * 100):
        clock.advance(STEP)
        if step == 100:
            for number in range(5):
                lost += await workers[number].take(5)  # killed with what they hold
                workers[number] = limiter(harness.broker, clock, WORKERS + number)
        for worker in random.sample(workers, 5):
            if worker.empty_until_ms is None and (tokens := await worker.take(3)):
                count = random.randint(0, tokens)
                begun += [(clock.now_ms(), count)] if count else []
                await worker.begun(count)
    total = sum(count for _, count in begun)
    assert most_beyond_the_rate(begun) <= RATE.most_at_once
    assert total + lost >= 0.8 * SECONDS * 1_000 / RATE.interval_ms, "the rate is also reached"


async def test_tokens_that_nothing_came_for_go_to_another_worker(harness: Harness) -> None:
    clock = ManualClock()
    idle, busy = limiter(harness.broker, clock, 1), limiter(await harness.another(), clock, 2)
    assert await idle.take(100) == 10
    assert await busy.take(100) == 0
    await idle.begun(0)
    busy = limiter(harness.broker, clock, 3)
    assert await busy.take(100) == 10


async def test_a_state_that_nobody_can_read_holds_nothing_back(harness: Harness) -> None:
    await harness.broker.shared.put("gate/tokens/mail", b"\xff not json", expected=None)
    assert await limiter(harness.broker, ManualClock(), 1).take(1) == 1
