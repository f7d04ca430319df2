"""The minute scheduler of specification 002 is a configuration of the same machinery: an hour ahead, every minute.

Its status words are projections: CREATED while the store holds a message, QUEUED once the broker has it, SENDING while
a worker does, SENT or FAILED when it has ended.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from godwit import config
from godwit.brokers.contract import Ack, GiveUp
from godwit.core.failures.failure import FailureKind
from godwit.core.messages.message import Message
from godwit.core.schedule.minute_statuses import MinuteStatus
from tests.scheduler.builders import HOUR, MINUTE, NOON, QUEUE
from tests.scheduler.memory_managers import MemoryManagers
from tests.store.conformance.harness import StoreHarness


@pytest.fixture
def managers(harness: StoreHarness) -> MemoryManagers:
    return MemoryManagers(harness.url)


def test_the_defaults_are_those_of_the_specification() -> None:
    found = config.load(environment={}).scheduler
    assert (found.minute_schedule, found.precision, found.look_ahead) == ("* * * * *", MINUTE, HOUR)


def test_its_variables_take_effect() -> None:
    environment = {
        "CRON_MINUTE_SCHEDULE": "*/5 * * * *",
        "SCHEDULER_PRECISION_MINUTES": "2",
        "SCHEDULER_MAX_FUTURE_DAYS": "30",
        "SCHEDULER_CLEANUP_INTERVAL": "60000",
    }
    found = config.load(environment=environment).scheduler
    assert found.minute_schedule == "*/5 * * * *"
    assert (found.precision, found.max_future) == (2 * MINUTE, timedelta(days=30))
    assert found.cleanup_interval == MINUTE


@pytest.mark.parametrize("word", ["61 * * * *", "* * * *", "0 0 31 2 *", "@reboot", "x"])
def test_an_impossible_minute_schedule_is_refused_at_the_start(word: str) -> None:
    with pytest.raises(Exception, match="CRON_MINUTE_SCHEDULE"):
        config.load(environment={"CRON_MINUTE_SCHEDULE": word})


@pytest.mark.parametrize(("ends", "word"), [("sent", MinuteStatus.SENT), ("failed", MinuteStatus.FAILED)])
async def test_the_status_goes_from_created_over_queued_and_sending_to_its_end(
    managers: MemoryManagers, ends: str, word: MinuteStatus
) -> None:
    async with managers.open() as mq:
        known = await mq.schedule_message(Message(queue=QUEUE, type="birthday"), NOON + 90 * MINUTE)

        async def status() -> MinuteStatus | None:
            return await mq.scheduler.status(known)

        assert await status() is MinuteStatus.CREATED
        managers.clock.advance(20 * MINUTE)
        await mq.scheduler.tick()
        assert await status() is MinuteStatus.CREATED  # not yet due within the hour
        managers.clock.advance(20 * MINUTE)
        await mq.scheduler.tick()
        assert await status() is MinuteStatus.QUEUED
        assert await managers.broker.pull(QUEUE, "default", worker="w", limit=1, lease=MINUTE) == []  # not early
        managers.clock.advance(50 * MINUTE)
        (delivery,) = await managers.broker.pull(QUEUE, "default", worker="w", limit=1, lease=MINUTE)
        assert await status() is MinuteStatus.SENDING
        end = Ack(delivery.ack_id) if ends == "sent" else GiveUp(delivery.ack_id, FailureKind.PERMANENT)
        await managers.broker.settle([end])
        assert await status() is word
        assert await mq.scheduler.status("nobody") is None
