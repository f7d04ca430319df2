"""A server that goes away and comes back: clients go on by themselves, nothing is lost, no worker is blamed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from godwit import MessageQueueManager
from godwit.brokers.contract import Ack, Delivery
from godwit.brokers.rabbitmq import RabbitMQBroker
from godwit.core.errors import BrokerUnavailable
from godwit.core.messages.message import Message
from godwit.core.names import QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from tests.brokers.rabbitmq import raw
from tests.conformance.harness import LONG, G, Harness, Q, ids_of
from tests.faults.child_processes import ChildProcesses
from tests.faults.random_kills import RandomKills
from tests.servers.rabbitmq import RabbitNode
from tests.steal_time import calm
from tests.waiting import eventually

PATIENT = timedelta(seconds=30)
UNORDERED = GroupSpec(name=G, max_crashes=None)


async def test_a_restart_of_the_server_under_load_loses_nothing_and_clients_go_on_within_10_seconds(
    rabbit: Harness, node: RabbitNode
) -> None:
    """Clients work on one queue; on another a worker holds a message that a single crash would make poison."""
    await rabbit.declare()
    await rabbit.declare(GroupSpec(name=G, max_crashes=1), queue="guarded")
    await rabbit.publish("held", queue="guarded")
    held = await rabbit.pull_one(queue="guarded", lease=LONG)
    await asyncio.to_thread(node.sync)
    broker = rabbit.broker
    accepted: list[str] = []
    done: list[str] = []
    up_again = asyncio.Event()
    first_after: list[float] = []

    async def publish() -> None:
        for number in range(60):
            batch = [rabbit.envelope(f"m{number:03}-{n}") for n in range(20)]
            accepted.extend(receipt.id for receipt in await broker.publish(batch))
            await asyncio.sleep(0)

    async def consume() -> None:
        while len(set(done)) < 60 * 20:
            try:
                deliveries = await broker.pull(Q, G, worker="w", limit=20, lease=LONG, wait=timedelta(seconds=1))
                refused = set(await broker.settle([Ack(delivery.ack_id) for delivery in deliveries]))
            except BrokerUnavailable:
                continue
            if deliveries and up_again.is_set() and not first_after:
                first_after.append(calm())
            done.extend(delivery.message_id for delivery in deliveries if delivery.ack_id not in refused)

    consuming = asyncio.create_task(consume())
    publishing = asyncio.create_task(publish())
    await eventually(lambda: len(done) > 100, within=PATIENT, what="some work")
    await asyncio.to_thread(node.kill)
    await asyncio.to_thread(node.start)
    started = calm()
    up_again.set()
    await publishing
    async with asyncio.timeout(60):
        await consuming
    assert len(accepted) == len(set(accepted)) == 1_200
    assert set(accepted) == set(done)
    assert first_after[0] - started < 10
    assert await rabbit.letters() == []
    await an_outage_is_nobodys_crash(rabbit, held)


async def an_outage_is_nobodys_crash(rabbit: Harness, held: Delivery) -> None:
    got: list[Delivery] = []

    async def back() -> bool:
        got.extend(await rabbit.pull(wait=timedelta(seconds=1), lease=LONG, queue="guarded"))
        return bool(got)

    await eventually(back, within=PATIENT, what="the message again")
    assert (got[0].message_id, got[0].crashes) == ("held", 0)
    assert await rabbit.broker.settle([Ack(held.ack_id)]) == [held.ack_id]
    assert await rabbit.broker.settle([Ack(got[0].ack_id)]) == []
    assert await rabbit.letters("guarded") == []


async def test_a_worker_consumes_again_by_itself_after_its_connection_was_cut(
    rabbit: Harness, node: RabbitNode
) -> None:
    await rabbit.declare()
    waiting = asyncio.create_task(rabbit.pull(5, wait=PATIENT, lease=LONG))
    await eventually(lambda: raw.of(rabbit)._consumer((Q, G)).consuming, what="a consumer")
    before = raw.of(rabbit).connection_counts
    await asyncio.to_thread(
        node.evaluate, '[rabbit_networking:close_connection(P, <<"test">>) || P <- rabbit_networking:connections()].'
    )
    await eventually(
        lambda: raw.of(rabbit).connection_counts.channel_opens > before.channel_opens, what="channels opened again"
    )
    other = await rabbit.another()
    await other.publish([rabbit.envelope("a")])
    assert ids_of(await waiting) == ["a"]
    counts = raw.of(rabbit).connection_counts
    assert counts.connected
    assert 0 < counts.channel_closes < counts.channel_opens


async def test_kill_nine_of_publishers_and_workers_loses_nothing(
    rabbit: Harness, tmp_path: Path, children: ChildProcesses
) -> None:
    await rabbit.declare(UNORDERED)
    chaos = RandomKills(
        children=children,
        place=tmp_path,
        random=Random(11),
        count=4_000,
        url=rabbit._backend._url,  # type: ignore[attr-defined]
        publishers=2,
        workers=3,
        limit=30,
    )
    chaos.begin()
    await chaos.run(12)
    found = await chaos.end(rabbit)
    assert found.accepted == 4_000
    assert chaos.kills >= 3
    assert chaos.victims
    assert found.held > 0, "the killed workers held nothing: the test showed nothing"
    assert (found.lost, found.unexplained) == (0, 0), found


async def test_a_publisher_that_dies_between_confirm_and_ledger_publishes_once_when_it_tries_again(
    rabbit: Harness, node: RabbitNode, tmp_path: Path
) -> None:
    await rabbit.declare()
    broker = raw.of(rabbit)
    # The confirm came, the note did not: as after kill -9 at that moment.
    plan_lost = broker._publisher._ledger.step
    calls = 0

    async def dying(step: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return await plan_lost(step, **options)  # type: ignore[arg-type]

    broker._publisher._ledger = type("Dying", (), {"step": staticmethod(dying), "post": staticmethod(print)})()
    with pytest.raises(KeyboardInterrupt):
        await rabbit.publish("a")
    await rabbit.restart()
    assert [receipt.fresh for receipt in await rabbit.publish("a")] == [True]
    got: list[str] = []

    async def drained() -> bool:
        got.extend(await rabbit.ids(wait=timedelta(milliseconds=200)))
        return bool(got)

    await eventually(drained, what="the message")
    assert await rabbit.ids(wait=timedelta(milliseconds=300)) == []
    assert got == ["a"]


async def test_the_manager_works_on_amqp(node: RabbitNode, tmp_path: Path) -> None:
    url = f"{node.url}?ledger={tmp_path / 'm.db'}&namespace={tmp_path.name}."
    seen: list[int] = []
    async with MessageQueueManager(RabbitMQBroker(url)) as mq:
        await mq.broker.declare(QueueSpec(name=QueueName("jobs")))
        await mq.enqueue_many([Message(queue="jobs", payload=number) for number in range(30)])
        while len(seen) < 30:
            for delivery in await mq.dequeue("jobs", "default", limit=10):
                seen.append(delivery.open().payload)
                await mq.acknowledge_message(delivery)
        await mq.broker.remove(QueueName("jobs"))
    assert sorted(seen) == list(range(30))
