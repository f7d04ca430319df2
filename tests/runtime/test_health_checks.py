"""Per-group health checks and what they make of an instance: active, inactive or failed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.memory import MemoryBroker
from godwit.config import load
from godwit.core.clock import ManualClock
from godwit.core.errors import InvalidSetting
from godwit.core.messages.message import Message
from godwit.core.names import DEFAULT_GROUP, GroupName, QueueName
from godwit.core.settings import Settings
from godwit.manager import MessageQueueManager
from godwit.runtime.worker.consumer import QueueConsumer
from godwit.runtime.worker.health_checks import HealthCallable, HealthProbe
from godwit.runtime.worker.heartbeat import STOPPED, ConsumerInstance, Heartbeat, InstanceStatus, Tally
from godwit.telemetry.health import Check
from tests.waiting import eventually

Q = QueueName("q")
mood: dict[str, bool] = {"well": True}


def says_how_it_is() -> bool:
    """Answer for the consumers of a configuration file."""
    return mood["well"]


def manager(tmp_path: Path, group: str = "", interval: int = 30) -> MessageQueueManager:
    file = tmp_path / "godwit.toml"
    file.write_text(
        f'[[queues]]\nname = "q"\n[[queues.consumer_groups]]\nname = "default"\n'
        f'health_check.interval = "{interval}ms"\nhealth_check.timeout = "{interval}ms"\n{group}'
    )
    return MessageQueueManager.from_config(file, environment={}, url="memory://")


@asynccontextmanager
async def at_work(mq: MessageQueueManager) -> AsyncIterator[None]:
    async with mq:
        worker = mq.worker()
        running = asyncio.create_task(worker.run())
        await eventually(lambda: has(mq, InstanceStatus.ACTIVE))
        try:
            yield
        finally:
            worker.stop()
            await running
        assert await has(mq, InstanceStatus.INACTIVE, STOPPED)


async def has(mq: MessageQueueManager, status: InstanceStatus, word: str = "") -> bool:
    found = await mq.instances()
    return bool(found) and all(one.status is status and word in (one.detail or "") for one in found)


async def handler(_: Message) -> None:
    """Do nothing."""


def value(mq: MessageQueueManager, name: str) -> float | None:
    lines = [line for line in mq.metrics.render().splitlines() if line.startswith(name + "{")]
    return float(lines[0].rsplit(" ", 1)[1]) if lines else None


def raises() -> None:
    raise RuntimeError("the mail server is away")


def hangs() -> None:
    time.sleep(3)


async def never_answers() -> None:
    await asyncio.Event().wait()


async def says_no() -> bool:
    return False


@pytest.mark.parametrize(
    ("check", "word"),
    [(raises, "the mail server is away"), (hangs, "no answer"), (never_answers, "no answer"), (says_no, "says no")],
)
async def test_a_health_callable_that_fails_makes_the_instance_failed(
    tmp_path: Path, check: HealthCallable, word: str
) -> None:
    mq = manager(tmp_path)
    mq.consumer("q", health_check=check)(handler)
    async with mq:
        worker = mq.worker()
        running = asyncio.create_task(worker.run())
        await eventually(lambda: has(mq, InstanceStatus.FAILED, word))
        assert value(mq, "consumer_health_status") == 0
        assert value(mq, "queue_consumers_active") == 0
        assert not await mq.monitor.is_healthy()
        worker.stop()
        await running


async def test_a_callable_named_in_the_file_is_asked_every_interval_and_may_recover(tmp_path: Path) -> None:
    mood["well"] = True
    mq = manager(tmp_path, 'health_check.callable = "tests.runtime.test_health_checks:says_how_it_is"')
    mq.consumer("q")(handler)
    async with at_work(mq):
        mood["well"] = False
        await eventually(lambda: has(mq, InstanceStatus.FAILED))
        mood["well"] = True
        await eventually(lambda: has(mq, InstanceStatus.ACTIVE))
        assert value(mq, "consumer_health_status") == 1
        assert value(mq, "queue_consumers_active") == 1
    assert value(mq, "consumer_health_status") is None, "one that ended is left out"


@pytest.mark.parametrize("name", ["nowhere:function", "tests.runtime.test_health_checks:nothing", "no-colon", "os:sep"])
async def test_a_callable_that_does_not_exist_is_refused_when_the_consumer_is_registered(
    tmp_path: Path, name: str
) -> None:
    mq = manager(tmp_path, f'health_check.callable = "{name}"')
    with pytest.raises(InvalidSetting, match=r"health_check\.callable"):
        mq.consumer("q")(handler)


async def test_the_class_form_answers_for_itself(tmp_path: Path) -> None:
    class Mailer(QueueConsumer):
        queues = ("q",)

        async def process_message(self, message: Message) -> None:
            """Do nothing."""

        async def health_check(self) -> bool:
            """Say no."""
            return False

    mq = manager(tmp_path)
    mq.register(Mailer())
    async with mq:
        worker = mq.worker()
        running = asyncio.create_task(worker.run())
        await eventually(lambda: has(mq, InstanceStatus.FAILED))
        worker.stop()
        await running


async def test_a_paused_group_is_inactive_and_takes_no_messages(tmp_path: Path) -> None:
    mq = manager(tmp_path)
    mq.consumer("q")(handler)
    async with at_work(mq):
        await mq.control.pause("q")
        await eventually(lambda: has(mq, InstanceStatus.INACTIVE, "paused"), within=timedelta(seconds=20))
        assert value(mq, "queue_consumers_active") == 0
        await mq.control.resume("q")
        await eventually(lambda: has(mq, InstanceStatus.ACTIVE), within=timedelta(seconds=20))


@pytest.mark.parametrize("status", [InstanceStatus.ACTIVE, InstanceStatus.INACTIVE, InstanceStatus.FAILED])
def test_whoever_misses_three_heartbeats_has_failed_unless_it_said_goodbye(status: InstanceStatus) -> None:
    clock = ManualClock()
    one = ConsumerInstance(
        id="w",
        queue=Q,
        group=GroupName("default"),
        status=status,
        last_heartbeat_ms=clock.now_ms(),
        interval_ms=5_000,
        started_ms=clock.now_ms(),
        detail="paused" if status is InstanceStatus.INACTIVE else None,
    )
    assert one.seen(clock.now_ms() + 15_000).status is status
    assert one.seen(clock.now_ms() + 15_001).status is InstanceStatus.FAILED


async def test_a_probe_without_a_callable_is_always_well() -> None:
    assert await HealthProbe().problem() is None


def test_a_group_takes_interval_and_timeout_from_the_consumer_section(tmp_path: Path) -> None:
    file = tmp_path / "godwit.toml"
    file.write_text('[[queues]]\nname = "q"\nconsumer_groups = ["a"]')
    settings = load(file, environment={"CONSUMER_HEALTH_CHECK_INTERVAL": "7000"})
    assert settings.queues[0].groups[0].health_check.interval == timedelta(seconds=7)


async def test_a_killed_worker_is_named_and_after_three_more_intervals_forgotten() -> None:
    """One kill -9 must not make the health of all others bad for as long as its entry lasts."""
    clock = ManualClock()
    mq = MessageQueueManager(MemoryBroker(clock=clock), settings=Settings(), clock=clock)
    interval = timedelta(seconds=5)
    async with mq:
        tallies = {(Q, DEFAULT_GROUP): Tally()}
        dead, alive = (Heartbeat(mq.broker.shared, name, tallies, interval=interval, clock=clock) for name in "da")
        await dead.beat({})

        async def consumers() -> Check:
            await alive.beat({})
            found = await mq.monitor.get_health_status()
            (check,) = [check for check in found.checks if check.name == "consumers"]
            assert check.healthy is found.healthy
            return check

        assert (await consumers()).healthy
        clock.advance(3 * interval + timedelta(seconds=1))
        check = await consumers()
        assert (check.healthy, check.detail) == (False, "1 of 2 well; failed: q/default/d")
        readiness = await mq.monitor.get_readiness()
        assert "consumers" not in [check.name for check in readiness.checks], "this process can work all the same"
        clock.advance(3 * interval)
        assert await consumers() == Check("consumers", healthy=True, detail="1 of 1 well")
