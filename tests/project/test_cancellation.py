"""The driver that cancels a call at each of its suspensions finds what a cancelled call leaves behind."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.cancellation import Moment, cancelled_everywhere


class Counter:
    """Something that a careless call leaves changed."""

    def __init__(self) -> None:
        self.held = 0

    async def is_zero(self) -> None:
        assert self.held == 0


async def test_every_suspension_is_a_point_also_those_of_tasks_that_the_call_starts() -> None:
    ends: list[int] = []

    async def part() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)

    async def call() -> None:
        await asyncio.sleep(0)
        await asyncio.gather(part(), part())
        ends.append(1)

    async def check() -> None:
        pass

    assert await cancelled_everywhere(call, check) == 6  # one, gather's own, and two of each part
    assert len(ends) >= len(Moment)  # the last round got through


@pytest.mark.parametrize("moment", Moment)
async def test_what_a_call_leaves_behind_at_its_second_suspension_is_found(moment: Moment) -> None:
    counter = Counter()

    async def careless() -> None:
        await asyncio.sleep(0.001)
        counter.held += 1
        await asyncio.sleep(0.001)
        counter.held -= 1

    with pytest.raises(AssertionError) as caught:
        await cancelled_everywhere(careless, counter.is_zero, moments=(moment,))
    assert caught.value.__notes__ == [f"cancelled at suspension 2, {moment.value}"]


async def test_a_call_that_forgets_that_it_was_cancelled_is_found() -> None:
    async def deaf() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.001)

    counter = Counter()
    with pytest.raises(AssertionError, match="although it was cancelled"):
        await cancelled_everywhere(deaf, counter.is_zero)
    assert await cancelled_everywhere(deaf, counter.is_zero, may_return=True) == 1


async def test_an_error_in_the_place_of_the_cancellation_is_found() -> None:
    async def translating() -> None:
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            raise KeyError("translated") from None

    with pytest.raises(KeyError, match="translated"):
        await cancelled_everywhere(translating, Counter().is_zero)
