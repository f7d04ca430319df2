from __future__ import annotations

import asyncio

import pytest

from godwit.core import background
from godwit.core.background import Background
from godwit.core.errors import BrokerClosed
from tests.hostile import HOSTILE_ERRORS
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FIRST_PAUSE", 0.001)


@pytest.mark.parametrize("kind", HOSTILE_ERRORS)
async def test_a_task_that_raises_anything_is_counted_and_started_again(kind: type[BaseException]) -> None:
    began = 0

    async def run() -> None:
        nonlocal began
        began += 1
        if began < 3:
            raise kind
        await asyncio.Event().wait()

    before = background.failures().get("sweep", 0)
    tasks = Background("test")
    kept = tasks.keep("sweep", run)
    await eventually(lambda: began == 3)
    assert background.failures()["sweep"] == before + 2
    assert kept in background.report()
    assert kept.failures == 2
    assert not kept.is_well
    assert kept.trouble is not None
    assert kept.trouble.startswith(kind.__name__)
    await tasks.close()
    assert kept not in background.report()


async def test_a_cancellation_that_nobody_meant_for_the_task_is_an_error_as_any_other() -> None:
    waited_for: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    came_back = asyncio.Event()

    async def run() -> None:
        if not waited_for.done():
            await waited_for
        came_back.set()
        await asyncio.Event().wait()

    tasks = Background("test")
    tasks.keep("sweep", run)
    await asyncio.sleep(0)
    waited_for.cancel()
    await eventually(came_back.is_set)
    await tasks.close()


async def test_a_task_that_returns_or_whose_broker_is_closed_has_ended() -> None:
    async def returns() -> None:
        pass

    async def closed() -> None:
        raise BrokerClosed("The broker")

    tasks = Background("test")
    ended = tasks.keep("one", returns), tasks.keep("two", closed)
    await eventually(lambda: all(one.task.done() for one in ended))
    assert [one.failures for one in ended] == [0, 0]
    await tasks.close()


async def test_an_errand_that_fails_is_counted_and_does_not_come_back() -> None:
    async def errand() -> None:
        raise ZeroDivisionError

    before = background.failures().get("look", 0)
    tasks = Background("test")
    tasks.once("look", errand())
    await eventually(lambda: background.failures().get("look", 0) == before + 1)
    await tasks.close()


async def test_closing_waits_for_what_a_task_does_on_its_way_out() -> None:
    released = False

    async def run() -> None:
        nonlocal released
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            released = True

    tasks = Background("test")
    tasks.keep("claim", run)
    await asyncio.sleep(0)
    await tasks.close()
    assert released
