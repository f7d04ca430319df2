"""A clock that jumps back and forth: nothing is lost, and the journal's time never goes back."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from godwit.brokers.contract import Ack, Delivery, HandBack, Nack
from godwit.core.queues import GroupSpec
from tests.conformance.harness import BACKENDS, LEASE, REAL_TIME, G, Harness
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
