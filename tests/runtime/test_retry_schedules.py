"""The retry schedules of the specifications, to the millisecond, through a worker whose clock is set by hand."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from godwit.config import load
from godwit.core.failures.failure import ErrorType, FailureKind
from godwit.core.failures.retry import Backoff, RetryPolicy, Strategy
from godwit.core.messages.message import Message
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.core.settings import Settings
from godwit.testing import in_memory, run_until_empty

EXAMPLES = Path(__file__).parents[2] / "examples"
Q = QueueName("notifications")
PROCESSORS = GroupName("processors")


class Chance(Random):
    """Chance that always says the same."""

    def __init__(self, always: float) -> None:
        super().__init__(0)
        self._always = always

    def random(self) -> float:
        """Return the number it was made with."""
        return self._always


def configured(name: str) -> Settings:
    return load(EXAMPLES / name, environment={}, arguments={"broker_url": "memory://"})


async def delays_of(
    settings: Settings,
    *,
    queue: str = Q,
    group: str = PROCESSORS,
    error: Exception | None = None,
    chance: float = 0.0,
    policy: RetryPolicy | None = None,
) -> tuple[list[float], list[FailureKind]]:
    """Fail every delivery of one message; return the seconds between them, and what it died of."""
    mq = in_memory(settings, random=Chance(chance))
    at: list[int] = []

    @mq.consumer(queue, group=group, retry_policy=policy)
    async def handler(_: Message) -> None:
        at.append(mq.clock.now_ms())
        raise error or ConnectionError("refused")

    async with mq:
        await mq.enqueue(Message(queue=queue))
        await run_until_empty(mq)
        letters = await mq.broker.dead_letters.page(QueueName(queue), group=GroupName(group))
    return [(later - earlier) / 1000 for earlier, later in pairwise(at)], [letter.kind for letter in letters]


SCHEDULES: dict[str, list[float]] = {
    "xnovu-development.toml": [0.5],
    "xnovu-production.toml": [2, 4, 8, 16],
    "xnovu-high-volume.toml": [1, 2],
}


@pytest.mark.parametrize(("name", "seconds"), SCHEDULES.items())
async def test_the_three_configurations_have_exactly_their_schedules(name: str, seconds: list[float]) -> None:
    assert await delays_of(configured(name)) == (seconds, [FailureKind.TRANSIENT])


@pytest.mark.parametrize(("name", "seconds"), SCHEDULES.items())
async def test_chance_adds_at_most_a_tenth_and_never_takes_away(name: str, seconds: list[float]) -> None:
    longest, _ = await delays_of(configured(name), chance=1.0)
    assert longest == pytest.approx([1.1 * one for one in seconds])
    for chance in (0.25, 0.5, 0.999):
        found, _ = await delays_of(configured(name), chance=chance)
        assert all(least <= one <= least * 1.1 for one, least in zip(found, seconds, strict=True))


@pytest.mark.parametrize("name", list(SCHEDULES))
async def test_the_kind_of_error_chooses_the_strategy(name: str) -> None:
    settings = configured(name)
    tries = len(SCHEDULES[name]) + 1
    first = SCHEDULES[name][0]
    assert await delays_of(settings, error=InvalidAddress()) == ([], [FailureKind.PERMANENT])
    linear = [first * number for number in range(1, tries)]
    assert await delays_of(settings, error=TimeoutError("slow")) == (linear, [FailureKind.EXPIRED])
    assert await delays_of(settings, error=RuntimeError("who knows")) == (SCHEDULES[name], [FailureKind.TRANSIENT])


class InvalidAddress(Exception):
    """What an API client raises for a request it will never take."""

    status_code = 422


@pytest.mark.parametrize(
    ("name", "queue", "group", "seconds"),
    [
        ("notifications.toml", "notifications:high", "email-processors", [1, 2, 4, 8]),
        ("notifications.toml", "notifications:normal", "email-processors", [5, 10]),
        ("birthdays.toml", "birthday.messages", "birthday.messages.queue", [2, 4, 8, 16, 32]),
    ],
)
async def test_the_shipped_configurations_have_exactly_their_schedules(
    name: str, queue: str, group: str, seconds: list[float]
) -> None:
    assert await delays_of(configured(name), queue=queue, group=group) == (seconds, [FailureKind.TRANSIENT])


@pytest.mark.parametrize(
    ("policy", "seconds"),
    [
        (RetryPolicy(max_attempts=5, strategy=Strategy.LINEAR), [1, 2, 3, 4]),
        (RetryPolicy(max_attempts=5, strategy=Strategy.LINEAR, max_delay=timedelta(seconds=2)), [1, 2, 2, 2]),
        (RetryPolicy(max_attempts=4, strategy=Strategy.FIXED, initial_delay=timedelta(seconds=7)), [7, 7, 7]),
        (RetryPolicy(max_attempts=3, strategy=Strategy.IMMEDIATE), [0, 0]),
        (RetryPolicy(max_attempts=9, strategy=Strategy.NONE), []),
        (RetryPolicy(max_attempts=6, max_delay=timedelta(seconds=5)), [1, 2, 4, 5, 5]),
    ],
)
async def test_linear_fixed_immediate_none_and_the_clamp(policy: RetryPolicy, seconds: list[float]) -> None:
    settings = Settings(broker_url="memory://")
    assert (await delays_of(settings, group="default", policy=policy))[0] == seconds


async def test_without_any_word_it_is_tried_three_times_and_the_delay_doubles_from_a_second() -> None:
    settings = Settings(broker_url="memory://")
    assert (await delays_of(settings, group="default", policy=RetryPolicy()))[0] == [1, 2]
    found, kinds = await delays_of(settings, group="default", policy=RetryPolicy(max_attempts=4))
    assert (found, kinds) == ([1, 2, 4], [FailureKind.TRANSIENT])


BACKOFF = [10, 20, 40, 80, 160, 320, 600, 600]
"""min(minimum x 2^(delivery - 1), maximum) for 10 s and 10 min."""


async def test_a_refused_message_comes_back_after_the_backoff_of_its_delivery() -> None:
    policy = RetryPolicy(max_attempts=9, initial_delay=timedelta(seconds=10), max_delay=timedelta(seconds=600))
    found, kinds = await delays_of(Settings(broker_url="memory://"), group="default", policy=policy)
    assert (found, kinds) == (BACKOFF, [FailureKind.TRANSIENT])


async def test_a_lease_that_ran_out_is_followed_by_the_backoff_of_its_delivery() -> None:
    mq = in_memory()
    lease = timedelta(seconds=10)
    group = GroupSpec(name=GroupName("default"), backoff=Backoff(), max_crashes=None, forgive_outages=False)
    async with mq:
        await mq.broker.declare(QueueSpec(name=Q), [group])
        await mq.enqueue(Message(queue=Q))
        for seconds in BACKOFF:
            assert len(await mq.dequeue(Q, lease=lease)) == 1
            mq.clock.advance(lease)
            await mq.broker.maintain()
            mq.clock.advance(timedelta(seconds=seconds) - timedelta(milliseconds=1))
            assert await mq.dequeue(Q, lease=lease) == []
            mq.clock.advance(timedelta(milliseconds=1))


async def test_every_failure_is_an_entry_of_the_history_with_type_text_time_and_whether_it_is_retried() -> None:
    mq = in_memory(configured("xnovu-high-volume.toml"), random=Chance(0.0))
    errors = iter([ConnectionRefusedError("ECONNREFUSED"), TimeoutError("slow"), InvalidAddress("validation")])
    began = mq.clock.now_ms()

    @mq.consumer(Q, group=PROCESSORS)
    async def handler(_: Message) -> None:
        raise next(errors)

    async with mq:
        await mq.enqueue(Message(queue=Q))
        await run_until_empty(mq)
        (letter,) = await mq.broker.dead_letters.page(Q)
    assert [(one.type, one.retryable) for one in letter.errors] == [
        (ErrorType.NETWORK, True),
        (ErrorType.TIMEOUT, True),
        (ErrorType.VALIDATION, False),
    ]
    assert [one.message.split(":")[0] for one in letter.errors] == [
        "ConnectionRefusedError",
        "TimeoutError",
        "InvalidAddress",
    ]
    assert [round(one.timestamp.timestamp() * 1000) - began for one in letter.errors] == [0, 1_000, 3_000]
    assert all(one.traceback and "handler" in one.traceback for one in letter.errors)
    assert (letter.kind, letter.failures, letter.attempt) == (FailureKind.PERMANENT, 3, 3)
