"""Failure patterns, and the watch that says when one grows."""

from __future__ import annotations

from datetime import timedelta

import pytest

from godwit.admin import patterns
from godwit.admin.dead_letters import DeadLetterQueueHandler
from godwit.admin.letter_filter import LetterFilter
from godwit.brokers.memory import MemoryBroker
from godwit.core.clock import ManualClock, from_ms
from godwit.core.failures.failure import ErrorType, FailureKind
from godwit.core.messages.envelope import seal
from godwit.core.names import DEFAULT_GROUP, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.telemetry.alerts import Alert, AlertName
from godwit.testing import in_memory
from tests.admin.builders import LEASE, Q, bury_ids, letters_of, messages

MAILS = QueueName("mails")


@pytest.fixture
async def handler(memory: MemoryBroker, clock: ManualClock) -> DeadLetterQueueHandler:
    return DeadLetterQueueHandler(memory, clock=clock, timer=clock)


async def test_letters_that_died_of_the_same_are_one_pattern(
    memory: MemoryBroker, handler: DeadLetterQueueHandler, clock: ManualClock
) -> None:
    await memory.declare(QueueSpec(name=MAILS))
    first = from_ms(clock.now_ms())
    await bury_ids(memory, "a", text="ValueError: no user 17 in 'shop'")
    clock.advance(timedelta(hours=1))
    await bury_ids(memory, "b", queue=MAILS, text="ValueError: no user 4711 in 'club'", kind=FailureKind.TRANSIENT)
    await bury_ids(memory, "c", text="refused", error_type=ErrorType.NETWORK)
    common, rare = await handler.patterns()
    assert (common.count, common.kinds) == (2, {FailureKind.PERMANENT: 1, FailureKind.TRANSIENT: 1})
    assert common.places == {"orders/default": 1, "mails/default": 1}
    assert (common.first_seen, common.last_seen) == (first, first + timedelta(hours=1))
    assert common.sample_message_id == "b"
    assert (rare.type, rare.message, rare.count) == ("network", "refused", 1)
    assert rare.sample in {letter.id for letter in await letters_of(memory)}
    assert [one.count for one in await handler.patterns(LetterFilter(name=MAILS))] == [1]


async def test_patterns_beyond_the_most_are_counted_together(
    memory: MemoryBroker, handler: DeadLetterQueueHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "MOST_PATTERNS", 3)
    for at, word in enumerate(("one", "two", "three", "four", "five", "one")):
        await bury_ids(memory, f"m{at}", text=f"no {word}")
    assert {one.message: one.count for one in await handler.patterns()} == {
        "no one": 2,
        "no two": 1,
        "no three": 1,
        "patterns beyond the first thousand": 2,
    }


async def test_a_growing_pattern_is_told_once_and_taken_back_when_it_is_over(
    memory: MemoryBroker, handler: DeadLetterQueueHandler, clock: ManualClock
) -> None:
    await bury_ids(memory, *(f"old{n}" for n in range(20)))
    clock.advance(timedelta(seconds=1))
    told: list[Alert] = []
    watch = handler.watch(told.append, threshold=10)
    assert await watch.tick() == []  # what died before is old news

    await bury_ids(memory, *(f"few{n}" for n in range(10)))
    assert await watch.tick() == []
    await bury_ids(memory, "one-more")
    (alert,) = await watch.tick()
    (pattern,) = await handler.patterns()
    assert (alert.name, alert.state, alert.value, alert.threshold) == (AlertName.HIGH_ERROR_RATE, "firing", 11, 10)
    assert alert.subject == f"orders/default/{pattern.fingerprint}"
    assert await watch.tick() == []

    clock.advance(timedelta(minutes=10))
    changes = [change for _ in range(5) for change in await watch.tick()]
    assert [change.state for change in changes] == ["cleared"]
    assert told == [alert, *changes]


async def test_different_errors_do_not_add_up_to_a_pattern(
    memory: MemoryBroker, handler: DeadLetterQueueHandler
) -> None:
    watch = handler.watch(threshold=2)
    for word in ("red", "green", "blue", "white"):
        await bury_ids(memory, word, text=f"{word} is missing")
    assert await watch.tick() == []


async def test_a_poison_message_raises_its_alert_through_the_managers_monitor() -> None:
    mq = in_memory()
    spec = GroupSpec(name=DEFAULT_GROUP, max_crashes=1, forgive_outages=False)
    async with mq:
        await mq.broker.declare(QueueSpec(name=Q), [spec])
        await mq.broker.publish([seal(message) for message in messages("killer")])
        assert await mq.monitor.check_alert_conditions() == []
        await mq.broker.pull(Q, DEFAULT_GROUP, worker="w", limit=1, lease=LEASE)
        mq.clock.advance(LEASE)
        await mq.broker.maintain()
        (alert,) = await mq.monitor.check_alert_conditions()
    assert (alert.name, alert.subject, alert.value) == (AlertName.POISON_MESSAGE, "orders", 1)
