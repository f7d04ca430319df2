from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from godwit.core import background
from godwit.core.errors import BrokerClosed, BrokerUnavailable
from godwit.core.periodic import PeriodicTasks
from tests.logs import capture_logs

AT_ONCE = timedelta(0)
HOUR = timedelta(hours=1)
AWAY = BrokerUnavailable("redis://h.test", "refused", "Start it.")


class Steps:
    """A step with an ending for each turn, which it takes in order, and closes the broker afterwards."""

    def __init__(self, *endings: BaseException | timedelta | None) -> None:
        self.endings, self.turns, self.unanswered = endings, 0, 0

    async def __call__(self) -> timedelta | None:
        self.turns += 1
        ending = self.endings[self.turns - 1] if self.turns <= len(self.endings) else BrokerClosed("memory://")
        if isinstance(ending, BaseException):
            raise ending
        return ending

    async def run(self, every: timedelta = AT_ONCE, **options: timedelta | None) -> list[str]:
        tasks = PeriodicTasks("o", unanswered=lambda: setattr(self, "unanswered", self.unanswered + 1))
        with capture_logs() as logs:
            await tasks.repeat("s", self, every, at_once=True, **options)  # type: ignore[arg-type]
        return [entry["event"] for entry in logs]


async def test_a_step_is_repeated_until_the_broker_is_closed() -> None:
    steps = Steps(None, None, None)
    assert await steps.run() == []
    assert steps.turns == 4


async def test_a_step_may_say_how_long_to_wait_for_its_next_turn() -> None:
    steps = Steps(AT_ONCE, AT_ONCE)
    async with asyncio.timeout(5):
        await steps.run(HOUR)
    assert steps.turns == 3


async def test_a_step_without_an_answer_is_logged_once_reported_and_taken_again() -> None:
    steps = Steps(AWAY, AWAY, TimeoutError(), None)
    assert await steps.run() == ["a periodic step got no answer", "a periodic step is answered again"]
    assert (steps.turns, steps.unanswered) == (5, 3)


async def test_a_step_that_takes_too_long_counts_as_one_without_an_answer() -> None:
    steps = Steps()

    async def hang() -> None:
        steps.turns += 1
        if steps.turns > 2:
            raise BrokerClosed("memory://")
        await asyncio.Event().wait()

    tasks = PeriodicTasks("o", unanswered=lambda: setattr(steps, "unanswered", steps.unanswered + 1))
    async with asyncio.timeout(5):
        await tasks.repeat("s", hang, AT_ONCE, within=timedelta(milliseconds=1))
    assert steps.unanswered == 2


async def test_an_error_of_any_other_kind_is_counted_and_the_step_goes_on() -> None:
    before = background.failures().get("s", 0)
    steps = Steps(RuntimeError("bad round"), SystemError("worse"), None)
    assert await steps.run() == ["a background task failed"] * 2
    assert (steps.turns, background.failures()["s"] - before) == (4, 2)


async def test_after_an_error_a_step_may_wait_longer_than_between_its_turns() -> None:
    steps = Steps(None, None, AWAY, None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await steps.run(after_error=HOUR)
    assert steps.turns == 3
