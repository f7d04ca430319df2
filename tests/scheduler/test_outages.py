"""A store that is away: scheduling fails clearly, publishing goes on, and everything resumes by itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from godwit.core.errors import StoreError, StoreUnavailable
from godwit.core.messages.message import Message
from godwit.core.settings import SchedulerSettings
from tests.scheduler.builders import HOUR, NOON, QUEUE
from tests.scheduler.conftest import emptied
from tests.scheduler.memory_managers import MemoryManagers
from tests.servers.postgres import shared
from tests.servers.processes import free_ports
from tests.waiting import eventually


async def test_a_database_that_is_not_there_at_the_start_is_named_and_only_scheduling_needs_it() -> None:
    (port,) = free_ports(1)
    managers = MemoryManagers(f"postgresql://godwit@127.0.0.1:{port}/nowhere")
    async with managers.open() as mq:
        with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}"):
            await mq.schedule_message(Message(queue=QUEUE), NOON + 2 * HOUR)
        with pytest.raises(StoreUnavailable):
            await mq.schedule_message(Message(queue=QUEUE), cron="@daily")
        await mq.enqueue(Message(queue=QUEUE, payload="now"))
        await mq.schedule_message(Message(queue=QUEUE, payload="soon"), NOON + HOUR)  # the broker holds it
        assert [one.payload for one in await managers.delivered()] == ["now"]


async def test_a_database_that_dies_in_the_middle_is_used_again_when_it_is_back() -> None:
    server = shared()
    managers = MemoryManagers(emptied())
    async with managers.open(SchedulerSettings(precision=timedelta(milliseconds=100))) as mq:
        for number in range(5):
            await mq.schedule_message(Message(queue=QUEUE, payload=number), NOON + 2 * HOUR)
        running = asyncio.create_task(mq.scheduler.run())
        try:
            await eventually(lambda: mq.scheduler.health.last is not None)
            server.ask("CHECKPOINT")  # the server of the tests commits without waiting for its disk
            server.kill()
            managers.clock.advance(90 * timedelta(minutes=1))
            await eventually(lambda: mq.scheduler.health.last_error is not None, what="a failed tick")
            with pytest.raises(StoreError):
                await mq.schedule_message(Message(queue=QUEUE), managers.now + 2 * HOUR)
            server.start()

            async def sent() -> bool:
                managers.clock.advance(timedelta(seconds=1))
                return (await managers.broker.stats())[0].published == 5

            await eventually(sent, within=timedelta(seconds=30), what="the firings")
        finally:
            mq.scheduler.stop()
            managers.clock.advance(3 * HOUR)
            await running
        assert sorted(one.payload for one in await managers.delivered()) == list(range(5))
