"""Leases are renewed as long as something is held, and nothing is done while nothing is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from godwit.brokers.contract import Ack
from godwit.brokers.memory import MemoryBroker
from godwit.core.failures.judgement import Judgement
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.names import AckId
from godwit.core.queues import QueueSpec
from godwit.runtime.delivery.in_flight import InFlight, Terms
from godwit.runtime.delivery.renewer import Renewer
from tests.waiting import eventually, real_time

LEASE = timedelta(seconds=30)
OFTEN = timedelta(milliseconds=5)


class Counted(InFlight):
    """Counts how often it is asked what to renew."""

    asked = 0

    def to_renew(self, now: float) -> dict[timedelta, list[AckId]]:
        """Count, and answer."""
        self.asked += 1
        return super().to_renew(now)


def never(*_: object) -> Judgement:
    raise AssertionError


async def test_it_sleeps_while_nothing_is_held_and_renews_again_as_soon_as_something_is() -> None:
    held, extended = Counted(), list[AckId]()
    terms = Terms(lease=LEASE, renewed_for=LEASE, settle=lambda _: None, judge=never)

    def extend(ack_ids: Sequence[AckId], _: timedelta) -> list[AckId]:
        extended.extend(ack_ids)
        return []

    async with MemoryBroker() as broker:
        await broker.declare(QueueSpec(name="q"))
        await broker.publish([seal(Message(queue="q")) for _ in range(2)])
        renewer = Renewer(held, extend, every=OFTEN)
        renewer.start()
        for _ in range(2):
            await eventually(lambda: held.asked > 0 and not held.something.is_set())
            asleep = held.asked
            await real_time(20 * OFTEN)
            assert held.asked == asleep
            (delivery,) = await broker.pull("q", "default", worker="w", limit=1, lease=LEASE)
            held.take([delivery], terms, asyncio.get_running_loop().time())
            await eventually(lambda delivery=delivery: extended.count(delivery.ack_id) > 2)
            held.drop([Ack(delivery.ack_id)])
        await asyncio.to_thread(renewer.stop)
