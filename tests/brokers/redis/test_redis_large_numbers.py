"""Numbers beyond one and two bytes: groups of a queue, leases that are open when an outage ends."""

from __future__ import annotations

from datetime import timedelta

import pytest

from godwit.brokers.contract import Ack
from godwit.brokers.redis import RedisBroker
from godwit.core.clock import ManualClock
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from tests.servers.redis import fresh

Q, G = QueueName("orders"), GroupName("default")
LEASE = timedelta(seconds=30)
LEASES = 65_600


def message(name: str) -> Envelope:
    return seal(Message(id=MessageId(name), queue=Q, payload=name))


@pytest.mark.parametrize("groups", [128, 257])
async def test_every_group_of_many_gets_what_was_confirmed(groups: int) -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        names = [GroupName(f"g{number}") for number in range(groups)]
        await broker.declare(QueueSpec(name=Q), [GroupSpec(name=name) for name in names])
        for published in (["a"], ["b", "c", "d"]):
            receipts = await broker.publish([message(name) for name in published])
            assert all(receipt.fresh for receipt in receipts)
        for name in sorted({names[0], names[126], names[127], names[-1]}):
            found = await broker.pull(Q, name, worker="w", limit=10, lease=LEASE)
            assert [delivery.message_id for delivery in found] == ["a", "b", "c", "d"], name
        stats = (await broker.stats())[0]
        assert {group.depth for group in stats.groups} == {4}
        assert await broker.maintain() == 0, "nothing is left to mend"


async def test_more_leases_than_two_bytes_count_outlive_an_outage() -> None:
    server, clock = fresh(), ManualClock()
    async with RedisBroker(server.url, now=lambda: str(clock.now_ms())) as broker:
        await broker.declare(QueueSpec(name=Q, dedup_window=timedelta(0)), [GroupSpec(name=G, max_crashes=1)])
        envelopes = [message(f"m{number}") for number in range(LEASES + 400)]
        for start in range(0, len(envelopes), 10_000):
            await broker.publish(envelopes[start : start + 10_000])
        held = []
        for many in (*[10_000] * 6, LEASES - 60_000, 400):
            if many == 400:
                clock.advance(timedelta(milliseconds=1))
            held += await broker.pull(Q, G, worker="w", limit=many, lease=LEASE)
        assert len(held) == LEASES + 400
        clock.advance(2 * LEASE)
        assert await broker.maintain() >= LEASES
        (group,) = (await broker.stats())[0].groups
        assert (group.leased, group.dead) == (LEASES + 400, 0), "an outage is nobody's crash"
        await broker.publish([message("fresh")])
        assert [one.message_id for one in await broker.pull(Q, G, worker="w", limit=5, lease=LEASE)] == ["fresh"]
        assert await broker.settle([Ack(one.ack_id, run_ms=1) for one in held[-400:]]) == []
        (group,) = (await broker.stats())[0].groups
        assert group.leased == group.depth == LEASES + 1
