"""A queue that is away, and a rule that cannot be planned, do not hold up the others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from godwit.brokers.contract import Receipt
from godwit.core.errors import BrokerUnavailable, InvalidSchedule
from godwit.core.messages.envelope import Envelope
from godwit.core.messages.message import Message
from godwit.core.names import QueueName
from godwit.core.queues import QueueSpec
from godwit.core.schedule.schedules import Rule
from godwit.manager import MessageQueueManager
from tests.hostile import OddTextError
from tests.scheduler.builders import HOUR, MINUTE, NOON, QUEUE, rule
from tests.scheduler.memory_managers import LastingBroker, MemoryManagers
from tests.store.conformance.harness import StoreHarness

AWAY = QueueName("aaa")
"""It comes before the others wherever queues are sorted."""


class HalfBroker(LastingBroker):
    """A broker of which the part that holds one queue may be away."""

    is_away = False

    def _check(self, queues: Sequence[str]) -> None:
        if self.is_away and AWAY in queues:
            raise BrokerUnavailable("memory://", "its master is gone", "Wait.")

    async def publish(self, envelopes: Sequence[Envelope], *, min_replicas: int | None = None) -> list[Receipt]:
        """Publish, where the queue's part is there."""
        self._check([one.queue for one in envelopes])
        return await super().publish(envelopes, min_replicas=min_replicas)

    async def cancel(self, queue: QueueName, message_id: Any, *, actor: str | None = None) -> bool:
        """Cancel, where the queue's part is there."""
        self._check([queue])
        return await super().cancel(queue, message_id, actor=actor)


@pytest.fixture
def managers(harness: StoreHarness) -> MemoryManagers:
    made = MemoryManagers(harness.url)
    made.broker = HalfBroker(clock=made.clock)
    return made


def away(managers: MemoryManagers, *, is_away: bool) -> None:
    """Let the part of the broker be away, or come back."""
    assert isinstance(managers.broker, HalfBroker)
    managers.broker.is_away = is_away


async def payloads(managers: MemoryManagers, queue: str) -> list[Any]:
    found = await managers.broker.pull(QueueName(queue), "default", worker="w", limit=100, lease=MINUTE)
    return sorted(one.open().payload for one in found)


async def test_a_queue_that_is_away_starves_no_other(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        await managers.broker.declare(QueueSpec(name=AWAY))
        for number in range(3):
            for queue in (AWAY, QUEUE):
                await mq.schedule_message(Message(queue=queue, payload=number), NOON + 2 * HOUR)
        away(managers, is_away=True)
        managers.clock.advance(2 * HOUR)
        for _ in range(2):
            ticked = await mq.scheduler.tick()
            managers.clock.advance(2 * MINUTE)  # what is in doubt may be claimed again
        assert ticked.sent == 0
        assert await payloads(managers, QUEUE) == [0, 1, 2]
        assert mq.scheduler.health.last is not None
        assert "aaa: " in (mq.scheduler.health.last.error or "")
        away(managers, is_away=False)
        await mq.scheduler.tick()
        assert await payloads(managers, AWAY) == [0, 1, 2]
        assert mq.scheduler.health.last.error is None


async def test_cancelled_messages_of_a_queue_that_is_away_keep_no_other_there(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        await managers.broker.declare(QueueSpec(name=AWAY))
        for queue in (AWAY, QUEUE):
            await mq.scheduler.add(Message(queue=queue), cron="* * * * *", id=f"every minute in {queue}")
        managers.clock.advance(MINUTE / 2)
        await mq.scheduler.tick()
        waiting = await managers.waiting()
        assert waiting >= 2
        away(managers, is_away=True)
        await cancelled(mq, f"every minute in {QUEUE}")
        with pytest.raises(BrokerUnavailable):
            await cancelled(mq, f"every minute in {AWAY}")
        managers.clock.advance(2 * MINUTE)
        await mq.scheduler.tick()
        assert await managers.broker.pull(QUEUE, "default", worker="w", limit=9, lease=MINUTE) == []
        away(managers, is_away=False)
        await mq.scheduler.tick()
        assert await managers.waiting() == 0


async def cancelled(mq: MessageQueueManager, schedule_id: str) -> None:
    await mq.scheduler.cancel(schedule_id)


async def test_a_rule_whose_zone_this_machine_does_not_know_stops_no_other(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        assert mq.store is not None
        for number in range(250):  # more than are planned at once
            unknown = Rule(cron="0 * * * *", timezone=f"Mars/Crater_{number}")
            await mq.store.schedules.add(rule(f"a{number}", rule=unknown, next_fire_at=NOON - MINUTE))
        await mq.scheduler.add(Message(queue=QUEUE, payload="rule"), cron="0 13 * * *", id="well")
        await mq.schedule_message(Message(queue=QUEUE, payload="single"), NOON + 2 * HOUR)
        managers.clock.advance(2 * HOUR)
        await mq.scheduler.tick()
        assert await payloads(managers, QUEUE) == ["rule", "single"]
        troubled = await mq.scheduler.get("a7")
        assert "Mars/Crater_7" in (troubled.problem or "")
        assert (await mq.scheduler.get("well")).problem is None
        await mq.scheduler.update("a7", timezone="UTC")
        assert (await mq.scheduler.get("a7")).problem is None


async def test_a_rule_that_raises_anything_is_noted_and_planned_when_it_can_be(
    managers: MemoryManagers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with managers.open() as mq:
        await mq.scheduler.add(Message(queue=QUEUE, payload=1), cron="0 13 * * *", id="odd")
        managers.clock.advance(HOUR)

        def odd(*_: object, **__: object) -> None:
            raise OddTextError

        with monkeypatch.context() as broken:
            broken.setattr("godwit.runtime.scheduler.ticker.plan", odd)
            await mq.scheduler.tick()
            assert (await mq.scheduler.get("odd")).problem
        await mq.scheduler.tick()
        assert (await mq.scheduler.get("odd")).problem is None
        assert await payloads(managers, QUEUE) == [1]


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
@pytest.mark.parametrize("cron", ["0 9 * * *", "* * * * * *", "0 0 29 2 *"])
@pytest.mark.parametrize("back", [timedelta(0), timedelta(hours=26), timedelta(days=400)], ids=str)
async def test_a_rule_that_starts_at_the_end_of_time_is_refused(
    managers: MemoryManagers, zone: str, cron: str, back: timedelta
) -> None:
    async with managers.open() as mq:
        starts_at = datetime.max.replace(tzinfo=UTC) - back
        with pytest.raises(InvalidSchedule):
            await mq.scheduler.add(Message(queue=QUEUE), cron=cron, timezone=zone, starts_at=starts_at)
