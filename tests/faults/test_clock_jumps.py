"""A clock that jumps back and forth: nothing is lost, and the journal's time never goes back."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from godwit.brokers.contract import Ack, Delivery, HandBack, Nack
from godwit.core.clock import SystemClock, milliseconds
from godwit.core.queues import GroupSpec
from tests.conformance.harness import BACKENDS, LEASE, LONG, REAL_TIME, STEP, G, Harness, ids_of
from tests.faults.reconciliation import agreeing, ids

JUMPS = tuple(timedelta(milliseconds=size) for size in (1, 300, 900, 60_000, 3_600_000, 90_000_000))


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name not in REAL_TIME])
@pytest.mark.parametrize("seed", range(4))
async def test_jumps_of_the_clock_lose_nothing_and_time_never_decreases(
    backend: str, seed: int, tmp_path: Path
) -> None:
    random = Random(seed)
    harness = Harness(backend, tmp_path)
    assert harness.clock is not None
    await harness.start()
    keep = timedelta(days=10_000)
    await harness.declare(GroupSpec(name=G, message_ordering=True, max_crashes=None), journal_keep=keep)
    published = 0
    held: list[Delivery] = []
    for _ in range(150):
        harness.clock.advance(random.choice(JUMPS) * random.choice((1, -1)))
        match random.randrange(5):
            case 0 | 1:
                key = random.choice(("a", "b", None))
                due = random.choice((None, None, LEASE))
                await harness.publish(*(f"m{published + n}" for n in range(3)), key=key, due=due)
                published += 3
            case 2 | 3:
                held += await harness.pull(random.randrange(1, 6))
            case _:
                word = random.choice((Ack, HandBack, Nack))
                await harness.broker.settle([word(delivery.ack_id) for delivery in held])
                held.clear()

    async def step() -> int:
        assert harness.clock is not None
        harness.clock.advance(timedelta(days=2))
        await harness.ids(1_000)  # after an outage: what is still leased ends one length from now
        harness.clock.advance(LEASE)
        await harness.ids(1_000)
        return (await harness.stats()).depth

    left = [await step() for _ in range(2 * published) if (await harness.stats()).depth]
    assert not left or left[-1] == 0
    rows = await agreeing(harness)
    arrived = ids(rows, "enqueued") + ids(rows, "scheduled")
    assert len(arrived) == published > 0
    assert sorted(ids(rows, "acked")) == sorted(arrived)
    await harness.stop()


AHEAD = timedelta(hours=1)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name not in REAL_TIME])
async def test_after_a_jump_forward_and_back_leases_and_retries_go_on_half_as_fast(
    backend: str, tmp_path: Path
) -> None:
    harness = Harness(backend, tmp_path)
    assert harness.clock is not None
    await harness.start()
    await harness.declare()
    harness.clock.advance(AHEAD)
    await harness.publish("silent", "failed", "later")
    silent, failed = await harness.pull(2)
    await harness.retry(failed, LEASE)
    harness.clock.advance(-AHEAD)
    await harness.let_pass(LEASE)
    assert await harness.ids() == ["later"]
    await harness.restart()  # what has become of the time is kept with the queue
    await harness.let_pass(LEASE + 2 * STEP)
    assert sorted(await harness.ids()) == ["failed", "silent"]
    assert await harness.broker.settle([Ack(silent.ack_id)]) == [silent.ack_id]
    await harness.publish("due", due=LEASE)
    harness.clock.advance(AHEAD * 2)  # the clock has caught up: it counts again
    now_ms = harness.now_ms
    assert await harness.ids() == ["due"]
    assert (await harness.rows())[-1]["at"] == now_ms
    await harness.stop()


class JumpingClock(SystemClock):
    """The machine's clock, with a jump."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@pytest.mark.parametrize("backend", ["memory", "sqlite", "rabbitmq"])
async def test_a_pull_that_waits_gets_what_was_postponed_while_the_clock_was_ahead(
    backend: str, tmp_path: Path
) -> None:
    clock = JumpingClock()
    harness = Harness(backend, tmp_path, live=True, system=clock)
    await harness.start()
    await harness.declare()
    clock.ahead_ms = milliseconds(AHEAD)
    await harness.publish("failed")
    await harness.retry(await harness.pull_one(), LEASE)
    await harness.publish("silent")
    await harness.pull_one()
    clock.ahead_ms = 0
    found = [await harness.pull_one(wait=LONG, lease=LONG) for _ in range(2)]
    assert sorted(ids_of(found)) == ["failed", "silent"]
    await harness.finish()
