from __future__ import annotations

import time
from datetime import timedelta

from godwit.brokers.memory import MemoryBroker
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import QueueSpec
from tests.steal_time import calm

Q, DEFAULT = QueueName("q"), GroupName("default")


async def test_a_pull_that_waits_for_a_lease_to_run_out_gets_the_message_then_and_not_a_lease_later() -> None:
    async with MemoryBroker() as broker:
        await broker.declare(QueueSpec(name=Q))
        await broker.publish([seal(Message(queue=Q))])
        lease = timedelta(seconds=1)
        assert len(await broker.pull(Q, DEFAULT, worker="silent", limit=1, lease=lease)) == 1
        since, since_calm = time.monotonic(), calm()
        (again,) = await broker.pull(Q, DEFAULT, worker="w", limit=1, lease=lease, wait=timedelta(seconds=5))
        assert time.monotonic() - since > 0.9
        assert calm() - since_calm < 1.8
        assert (again.attempt, again.crashes) == (2, 1)
