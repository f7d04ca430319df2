"""Three nodes: the leader of a quorum queue dies during publishing and consuming, and clients notice little."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.admin.doctor import examine
from godwit.brokers.contract import Ack
from godwit.brokers.rabbitmq import RabbitMQBroker
from godwit.core.errors import BrokerUnavailable
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.names import QueueName
from godwit.core.queues import QueueSpec
from tests.conformance.harness import LONG, G
from tests.servers.processes import HOST, free_ports
from tests.servers.rabbitmq import RabbitNode, cluster
from tests.steal_time import calm
from tests.waiting import eventually

CLUSTERED = QueueName("clustered")
BATCHES, SIZE = 60, 20
SILENCE_SECONDS = 10


def leader_of(nodes: list[RabbitNode], queue: str) -> RabbitNode:
    """Return the node that leads a quorum queue, and show that three have it."""
    alive = next(node for node in nodes if node.alive)
    listed = json.loads(alive.control("list_queues", "name", "leader", "members", "--formatter=json"))
    (found,) = [one for one in listed if one["name"] == queue]
    assert len(found["members"]) == 3
    return next(node for node in nodes if node.name == found["leader"])


@pytest.mark.xdist_group("rabbitmq cluster")
async def test_rabbitmq_node_failure(tmp_path: Path) -> None:
    (management,) = free_ports(1)
    with cluster(3, plugins=("rabbitmq_management",), configuration=f"management.tcp.port = {management}\n") as nodes:
        places = ",".join(f"{HOST}:{node.port}" for node in reversed(nodes))
        url = f"amqp://guest:guest@{places}/?ledger={tmp_path / 'ledger.db'}&management={management}"
        async with RabbitMQBroker(url) as publisher, RabbitMQBroker(url) as consumer:
            await publisher.declare(QueueSpec(name=CLUSTERED))
            leader = await asyncio.to_thread(leader_of, nodes, publisher.names.group(CLUSTERED, G))
            healthy = {finding.check: finding.severity for finding in await examine(url)}
            assert (healthy["nodes"], healthy["members"], healthy["alarms"]) == ("ok", "ok", "ok")
            accepted: list[str] = []
            done: list[str] = []
            moments: list[float] = []

            async def publish() -> None:
                for number in range(BATCHES):
                    batch = [seal(Message(id=f"m{number:03}-{n}", queue=CLUSTERED)) for n in range(SIZE)]
                    accepted.extend(receipt.id for receipt in await publisher.publish(batch))

            async def consume() -> None:
                while len(set(done)) < BATCHES * SIZE:
                    try:
                        came = await consumer.pull(
                            CLUSTERED, G, worker="w", limit=20, lease=LONG, wait=timedelta(seconds=1)
                        )
                        refused = set(await consumer.settle([Ack(one.ack_id) for one in came]))
                    except BrokerUnavailable:
                        continue
                    if came:
                        moments.append(calm())
                    done.extend(one.message_id for one in came if one.ack_id not in refused)

            consuming, publishing = asyncio.create_task(consume()), asyncio.create_task(publish())
            await eventually(lambda: len(done) > 100, within=timedelta(seconds=30), what="some work")
            first_died = leader is nodes[0]
            await asyncio.to_thread(leader.kill)
            killed = calm()
            await publishing
            async with asyncio.timeout(90):
                await consuming
            assert len(accepted) == len(set(accepted)) == BATCHES * SIZE
            assert set(done) == set(accepted), "every confirmed message is delivered"
            gaps = [
                later - earlier for earlier, later in zip([killed, *moments], moments, strict=False) if later > killed
            ]
            assert max(gaps, default=0) < SILENCE_SECONDS, "clients go on by themselves"
            assert await asyncio.to_thread(leader_of, nodes, publisher.names.group(CLUSTERED, G)) is not leader
            assert await consumer.dead_letters.page(CLUSTERED) == []
            # The management interface is that of the first node, which may be the one that died.
            hurt = {finding.check: finding.severity for finding in await examine(url)}
            assert hurt["nodes"] == ("note" if first_died else "problem")
