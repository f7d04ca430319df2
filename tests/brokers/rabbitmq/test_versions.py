"""What differs between RabbitMQ 3.10 and 4.x is said by Godwit, so that no default of the server decides.

In 4.0 quorum queues got a delivery limit of 20 unless they say otherwise, classic mirrored queues are gone and a
virtual host may have another default queue type; from 4.3 on a message that is given back no longer counts. Every queue
here is declared with its type and its limit, attempts are counted by Godwit's own header, and what is handed back is
published anew. Whether that is enough a real server of 4.x shows: `GODWIT_TEST_RABBITMQ=FOLDER ./dev test
tests/brokers/rabbitmq`, with the folder that has its `rabbitmq-server`.
"""

from __future__ import annotations

from typing import Any

from pamqp import commands

from godwit.brokers.contract import GiveUp, HandBack
from godwit.brokers.rabbitmq.layout.delays import levels
from godwit.brokers.rabbitmq.layout.topology import DELIVERY_LIMIT, NO_DELIVERY_LIMIT, Names, group_frames, queue_frames
from godwit.brokers.rabbitmq.url import Address
from godwit.core.failures.failure import FailureKind
from godwit.core.names import QueueName
from godwit.core.queues import QueueSpec
from tests.brokers.rabbitmq import raw
from tests.conformance.harness import LONG, G, Harness, Q, ids_of
from tests.servers.rabbitmq import RabbitNode

DEFAULT_LIMIT = 20
"""Of RabbitMQ 4."""


def declared() -> dict[str, dict[str, Any]]:
    """Return all queues of the server that Godwit declares, with their arguments."""
    names, address = Names(), Address.from_url("amqp://h")
    spec = QueueSpec(name=QueueName("q"))
    frames = [*levels(), *queue_frames(names, spec.name), *group_frames(names, address, spec, G)]
    return {one.queue: dict(one.arguments or {}) for one in frames if isinstance(one, commands.Queue.Declare)}


def test_every_queue_says_its_type_and_those_that_are_consumed_their_delivery_limit() -> None:
    queues = declared()
    assert {one["x-queue-type"] for one in queues.values()} == {"quorum"}
    limits = {name: one.get("x-delivery-limit") for name, one in queues.items() if not name.startswith("godwit.hold")}
    assert limits == {"q#default": DELIVERY_LIMIT, "q##dlq": NO_DELIVERY_LIMIT}


async def test_a_dead_letter_that_was_given_back_more_often_than_any_default_allows_is_still_there(
    rabbit: Harness, node: RabbitNode
) -> None:
    await rabbit.declare()
    await rabbit.publish("a")
    delivery = await rabbit.pull_one(lease=LONG)
    await rabbit.broker.settle([GiveUp(delivery.ack_id, FailureKind.PERMANENT)])
    async with raw.channel(node.url) as channel:
        for _ in range(DEFAULT_LIMIT + 5):
            (letter,) = await channel.get(raw.of(rabbit).names.dlq(Q), 1)
            channel.requeue([letter.tag])
    assert ids_of(await rabbit.letters()) == ["a"]


async def test_handing_back_counts_nowhere(rabbit: Harness) -> None:
    await rabbit.declare()
    await rabbit.publish("a")
    for _ in range(DEFAULT_LIMIT + 5):
        delivery = await rabbit.pull_one(lease=LONG)
        assert (delivery.attempt, delivery.crashes) == (1, 0)
        await rabbit.broker.settle([HandBack(delivery.ack_id)])
    assert await rabbit.ids() == ["a"]
    assert await rabbit.letters() == []
