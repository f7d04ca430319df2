"""No background task dies unseen: whatever it raises is logged, counted and shown, and the task comes back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from godwit import MessageQueueManager
from godwit.brokers.memory import MemoryBroker
from godwit.core import background
from godwit.core.background import Background
from godwit.core.messages.message import Message
from godwit.core.names import AckId
from godwit.core.settings import MonitoringSettings, Settings
from tests.hostile import HOSTILE_ERRORS, OddError, UnshowableError
from tests.runtime.memory_workers import AT_ONCE, Q, at_work, empty, publish
from tests.servers.redis import redis_server
from tests.waiting import eventually

WITHIN = timedelta(seconds=20)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FIRST_PAUSE", 0.01)


@asynccontextmanager
async def whole_process(url: str, folder: Path) -> AsyncIterator[MessageQueueManager]:
    """Run what `godwit worker --metrics-port` runs."""
    monitoring = MonitoringSettings(http_port=0)
    settings = Settings(broker_url=url, store_url=f"sqlite:///{folder}/store.db", monitoring=monitoring)
    mq = MessageQueueManager.from_settings(settings)

    @mq.consumer(Q, health_check=lambda: True)
    async def handle(message: Message) -> None:
        pass

    running = Background("process")
    async with mq:
        worker = mq.worker()
        work = asyncio.create_task(worker.run())
        running.keep("scheduler", mq.scheduler.run)
        running.keep("books", mq.store_services.run)
        try:
            yield mq
        finally:
            await running.close()
            worker.stop()
            await work


def interrupt(task: background.BackgroundTask) -> bool:
    """Let what a task waits for raise an exception of no known kind; say whether it waits for anything."""
    awaited = task.task._fut_waiter  # type: ignore[attr-defined]
    if awaited is None or awaited.done():
        return False
    if isinstance(awaited, asyncio.Task):
        return False
    awaited.set_exception(OddError("of no known kind"))
    return True


EVERYWHERE = {
    *("watchdog", "maintenance", "gate", "summary", "heartbeat", "health check"),
    *("scheduler", "books", "recorder", "census", "outbox", "ledger sweep"),
    *("monitor", "instances", "producer entry"),
}
ON_REDIS = {"wake-ups"}
SHORT_LIVED = {
    "reconnect": "runs while RabbitMQ is away; tests of outages end connections under it",
    "orphan watch": "runs in children of a supervisor; tests kill supervisors",
}
"""Supervised tasks that a worker's process does not run all the time."""


@pytest.mark.parametrize("broker", ["sqlite", "redis"])
async def test_every_background_task_that_fails_is_counted_shown_and_comes_back(broker: str, tmp_path: Path) -> None:
    if broker == "redis":
        with redis_server() as server:
            await walk(server.url, tmp_path, EVERYWHERE | ON_REDIS)
    else:
        await walk(f"sqlite:///{tmp_path}/godwit.db", tmp_path, EVERYWHERE)


async def walk(url: str, folder: Path, expected: set[str]) -> None:
    async with whole_process(url, folder) as mq:

        def tasks() -> dict[str, background.BackgroundTask]:
            return {task.name: task for task in background.report()}

        await eventually(lambda: expected <= tasks().keys(), within=WITHIN)
        assert tasks().keys() == expected, "every task that runs is made to fail"
        for name in sorted(expected):
            before = background.failures().get(name, 0)
            await eventually(lambda name=name: name in tasks() and interrupt(tasks()[name]), within=WITHIN)

            def came_back(name: str = name, before: int = before) -> bool:
                return background.failures().get(name, 0) > before and name in tasks() and not tasks()[name].task.done()

            await eventually(came_back, within=WITHIN)
            assert f'godwit_background_task_failures_total{{task="{name}"}}' in await mq.monitor.render_metrics()
            readiness = await mq.monitor.get_readiness()
            (check,) = [check for check in readiness.checks if check.name == "background"]
            assert not check.healthy
            assert name in check.detail
            assert "OddError" in check.detail
        await mq.enqueue(Message(queue=Q))
        await eventually(lambda: empty(mq.broker), within=WITHIN)


# Errors inside error handling


@pytest.mark.parametrize("kind", HOSTILE_ERRORS)
@pytest.mark.parametrize("hook", [False, True], ids=["raised by a handler", "raised by a classify hook too"])
async def test_a_message_whose_failure_is_hostile_is_settled_and_others_go_on(
    kind: type[BaseException], hook: bool
) -> None:
    seen: list[str] = []

    async def handler(message: Message) -> None:
        if message.payload == "bad":
            raise kind
        seen.append(message.payload)

    def classify(error: BaseException) -> None:
        raise kind

    options: dict[str, Any] = {"classify": classify} if hook else {}
    async with MemoryBroker() as broker, at_work(broker, handler, retry_policy=AT_ONCE, **options) as worker:
        await publish(broker, "bad", "good")
        await eventually(lambda: seen == ["good"], within=WITHIN)
        await eventually(lambda: empty(broker), within=WITHIN)
        assert len(await broker.dead_letters.page(Q)) == 1
        assert not worker.watchdog.restarts


async def test_a_plain_function_that_hangs_does_not_keep_a_last_chance_from_the_others() -> None:
    release, begun, seen = threading.Event(), list[str](), list[str]()

    def handler(message: Message) -> None:
        begun.append(message.payload)
        if message.payload == "hangs":
            release.wait()
        seen.append(message.payload)

    limits: dict[str, Any] = {"concurrency": 3, "time_limit": timedelta(seconds=0.2), "last_chance": 1}
    async with MemoryBroker() as broker, at_work(broker, handler, lease=timedelta(seconds=0.5), **limits):
        try:
            await publish(broker, "hangs", "good")
            # What hangs is given back when its lease has run out, which is a crash: its next try is its last chance.
            await eventually(lambda: begun.count("hangs") == 2, within=WITHIN)
            await publish(broker, "later")
            await eventually(lambda: "later" in seen, within=WITHIN)
        finally:
            release.set()


class OddBroker(MemoryBroker):
    """A memory broker that cannot settle one message, whose error is of no known kind."""

    odd: frozenset[AckId] = frozenset()

    async def settle(self, settlements: Any) -> list[AckId]:
        """Settle, unless the odd one is among them."""
        if any(one.ack_id in self.odd for one in settlements):
            raise UnshowableError
        return await super().settle(settlements)

    async def pull(self, *arguments: Any, **options: Any) -> Any:
        """Pull, and note which one is odd."""
        deliveries = await super().pull(*arguments, **options)
        self.odd |= {one.ack_id for one in deliveries if one.open().payload == "odd" and one.attempt == 1}
        return deliveries


async def test_a_settlement_that_cannot_be_carried_out_loses_no_other() -> None:
    async def handler(_: Message) -> None:
        pass

    before = background.failures().get("settler", 0)
    async with OddBroker() as broker, at_work(broker, handler, lease=timedelta(seconds=0.5)) as worker:
        await publish(broker, "a", "odd", "b", "c")
        await eventually(lambda: empty(broker), within=WITHIN)
        await eventually(worker.is_idle, within=WITHIN)
        assert background.failures()["settler"] > before


async def test_an_error_of_what_counts_settlements_does_not_hold_up_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(_: Message) -> None:
        pass

    async with MemoryBroker() as broker, at_work(broker, handler) as worker:

        def odd(*_: object) -> None:
            raise OddError

        monkeypatch.setattr(worker.counts, "settled", odd)
        for payload in "abc":
            await publish(broker, payload)
            await eventually(lambda: empty(broker), within=WITHIN)
        await eventually(worker.is_idle, within=WITHIN)


async def test_a_consumer_cancelled_from_inside_is_started_again() -> None:
    seen: list[str] = []

    async def handler(message: Message) -> None:
        seen.append(message.payload)

    async with MemoryBroker() as broker, at_work(broker, handler) as worker:
        await publish(broker, "a")
        await eventually(lambda: seen == ["a"], within=WITHIN)
        next(task for task in asyncio.all_tasks() if is_puller(task)).cancel()
        await eventually(lambda: worker.watchdog.restarts == 1, within=WITHIN)
        await publish(broker, "b")
        await eventually(lambda: seen == ["a", "b"], within=WITHIN)


def is_puller(task: asyncio.Task[Any]) -> bool:
    return getattr(task.get_coro(), "__qualname__", "") == "Puller.run"
