"""What is declared on the server: the specification's names, limits, and refusals that say what differs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from pamqp import commands

from godwit import config
from godwit.brokers.contract import GiveUp
from godwit.brokers.rabbitmq import QueueNames, RabbitMQBroker
from godwit.brokers.rabbitmq.layout.topology import Names, group_arguments
from godwit.brokers.rabbitmq.url import Address
from godwit.brokers.urls import connect
from godwit.core.errors import InvalidSetting, NotRouted, QueueFull, TopologyMismatch
from godwit.core.failures.failure import FailureKind
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from tests.brokers.rabbitmq import raw
from tests.conformance.harness import LONG, Harness
from tests.servers.rabbitmq import RabbitNode
from tests.waiting import eventually

BIRTHDAYS = QueueName("birthday.messages")
GROUP = GroupName("birthday.messages.queue")
VARIABLES = {
    "RABBITMQ_EXCHANGE_NAME": "birthday.messages",
    "RABBITMQ_QUEUE_NAME": "birthday.messages.queue",
    "RABBITMQ_DLX_NAME": "birthday.messages.dlx",
    "RABBITMQ_DLQ_NAME": "birthday.messages.dlq",
    "QUEUE_CONCURRENCY": "7",
}


@asynccontextmanager
async def birthdays(node: RabbitNode, place: Path) -> AsyncIterator[RabbitMQBroker]:
    """Open the broker that the specification's variables describe."""
    settings = config.load(environment=VARIABLES | {"RABBITMQ_URL": f"{node.url}?ledger={place / 'birthdays.db'}"})
    broker = connect(settings.broker_url, rabbitmq=settings.rabbitmq, default_queue=settings.default_queue)
    assert isinstance(broker, RabbitMQBroker)
    async with broker:
        await broker.declare(QueueSpec(name=BIRTHDAYS), [GroupSpec(name=GROUP)])
        try:
            yield broker
        finally:
            await broker.remove(BIRTHDAYS)


async def test_the_variables_give_the_exchanges_and_queues_of_the_specification(
    node: RabbitNode, tmp_path: Path
) -> None:
    async with birthdays(node, tmp_path):
        defined = json.loads(node.control("export_definitions", "-"))
        exchanges = {one["name"]: one["type"] for one in defined["exchanges"] if "birthday" in one["name"]}
        assert exchanges == {"birthday.messages": "topic", "birthday.messages.dlx": "direct"}
        queues = {one["name"]: one for one in defined["queues"] if "birthday" in one["name"]}
        assert set(queues) == {"birthday.messages.queue", "birthday.messages.dlq"}
        assert all(one["durable"] for one in queues.values())
        assert queues["birthday.messages.queue"]["arguments"]["x-queue-type"] == "quorum"
        bindings = {(one["source"], one["destination"], one["routing_key"]) for one in defined["bindings"]}
        assert ("birthday.messages.dlx", "birthday.messages.dlq", "dlq") in bindings
        assert ("birthday.messages", "birthday.messages.queue", "#") in bindings


@pytest.mark.parametrize("kind", ["birthday", "anniversary"])
async def test_a_message_goes_through_the_exchange_with_its_type_as_routing_key(
    node: RabbitNode, tmp_path: Path, kind: str
) -> None:
    async with birthdays(node, tmp_path) as broker, raw.channel(node.url) as channel:
        await channel.call(commands.Queue.Declare(queue="spy", exclusive=True))
        await channel.call(commands.Queue.Bind(queue="spy", exchange="birthday.messages", routing_key=kind))
        await broker.publish([seal(Message(queue=BIRTHDAYS, type=kind, payload={"user": 7}))])
        (seen,) = await channel.get("spy", 5)
        assert (seen.routing_key, seen.properties.type) == (kind, kind)
        assert json.loads(seen.body)["payload"] == {"user": 7}
        (delivery,) = await broker.pull(BIRTHDAYS, GROUP, worker="w", limit=5, lease=LONG)
        assert delivery.open().payload == {"user": 7}


async def test_a_permanent_error_goes_through_the_dead_letter_queue_at_once(node: RabbitNode, tmp_path: Path) -> None:
    async with birthdays(node, tmp_path) as broker:
        await broker.publish([seal(Message(queue=BIRTHDAYS, type="birthday"))])
        (delivery,) = await broker.pull(BIRTHDAYS, GROUP, worker="w", limit=1, lease=LONG)
        await broker.settle([GiveUp(delivery.ack_id, FailureKind.PERMANENT)])
        assert await raw.count(node.url, "birthday.messages.dlq") == 1
        (letter,) = await broker.dead_letters.page(BIRTHDAYS)
        assert (letter.group, letter.kind) == (GROUP, FailureKind.PERMANENT)
        assert await raw.count(node.url, "birthday.messages.dlq") == 0


async def test_a_queue_with_a_given_name_has_one_group(node: RabbitNode, tmp_path: Path) -> None:
    async with birthdays(node, tmp_path) as broker:
        with pytest.raises(InvalidSetting, match=r"birthday\.messages\.queue"):
            await broker.declare(QueueSpec(name=BIRTHDAYS), [GroupSpec(name=GROUP), GroupSpec(name=GroupName("two"))])


async def test_an_unroutable_message_is_an_error_and_not_a_silent_loss(node: RabbitNode, tmp_path: Path) -> None:
    names = {QueueName("keyed"): QueueNames(routing_keys=("birthday", "anniversary"))}
    url = f"{node.url}?ledger={tmp_path / 'keyed.db'}&namespace={tmp_path.name}."
    async with RabbitMQBroker(url, names=names) as broker:
        await broker.declare(QueueSpec(name=QueueName("keyed")))
        await broker.publish([seal(Message(queue="keyed", type="anniversary"))])
        with pytest.raises(NotRouted, match="'wedding' reaches no queue"):
            await broker.publish([seal(Message(queue="keyed", type="wedding"))])
        (stats,) = await broker.stats()
        assert (stats.published, stats.groups[0].depth) == (1, 1)
        await broker.remove(QueueName("keyed"))


def test_queues_are_replicated_limited_and_dead_lettered_at_least_once() -> None:
    address = Address.from_url("amqp://h")
    arguments = group_arguments(Names(), address, QueueSpec(name=QueueName("q")))
    assert arguments == {
        "x-queue-type": "quorum",
        "x-quorum-initial-group-size": 3,
        "x-overflow": "reject-publish",
        "x-max-length": 100_000,
        "x-message-ttl": 86_400_000,
        "x-dead-letter-exchange": "q##dlx",
        "x-dead-letter-routing-key": "dlq",
        "x-dead-letter-strategy": "at-least-once",
        "x-delivery-limit": 50,
    }
    larger = group_arguments(Names(), address, QueueSpec(name=QueueName("q"), max_size=250_000, ttl=timedelta(days=7)))
    assert (larger["x-max-length"], larger["x-message-ttl"]) == (250_000, 7 * 86_400_000)


async def test_the_servers_own_limit_refuses_a_publish_as_full(node: RabbitNode, tmp_path: Path) -> None:
    url = f"{node.url}?ledger={tmp_path / 'small.db'}&namespace={tmp_path.name}.&max_length=3"
    async with RabbitMQBroker(url) as broker:
        await broker.declare(QueueSpec(name=QueueName("small")))

        refusals: list[QueueFull] = []

        async def full() -> bool:
            try:
                await broker.publish([seal(Message(queue="small"))])
            except QueueFull as error:
                refusals.append(error)
            return bool(refusals)

        # The server counts a little behind: it says no after a few more than three.
        await eventually(full, what="a refused publish")
        assert (refusals[0].queue, refusals[0].group, refusals[0].limit) == ("small", "default", "max_length")
        (stats,) = await broker.stats()
        assert stats.groups[0].ready == stats.published < 50
        await broker.remove(QueueName("small"))


async def test_what_waits_longer_than_the_servers_ttl_is_an_expired_dead_letter(
    node: RabbitNode, tmp_path: Path
) -> None:
    url = f"{node.url}?ledger={tmp_path / 'brief.db'}&namespace={tmp_path.name}.&message_ttl=0.3"
    async with RabbitMQBroker(url) as broker:
        await broker.declare(QueueSpec(name=QueueName("brief")))
        await broker.publish([seal(Message(id="a", queue="brief"))])

        async def expired() -> bool:
            await broker.maintain()
            return [letter.kind for letter in await broker.dead_letters.page(QueueName("brief"))] == [
                FailureKind.EXPIRED
            ]

        await eventually(expired, what="an expired letter")
        (stats,) = await broker.stats()
        assert (stats.groups[0].depth, stats.groups[0].dead) == (0, 1)
        await broker.remove(QueueName("brief"))


async def test_an_argument_the_server_cannot_change_is_named_with_both_values(node: RabbitNode, tmp_path: Path) -> None:
    base = f"{node.url}?namespace={tmp_path.name}.&ledger={tmp_path}"
    async with RabbitMQBroker(f"{base}/one.db&max_length=10") as broker:
        await broker.declare(QueueSpec(name=QueueName("q")))
        async with RabbitMQBroker(f"{base}/two.db&max_length=20") as other:
            with pytest.raises(TopologyMismatch) as caught:
                await other.declare(QueueSpec(name=QueueName("q")))
            assert caught.value.argument == "x-max-length"
            assert "20" in caught.value.wanted
            assert "10" in caught.value.found
            assert "delete it" in caught.value.remedy
            assert await other.stats() == []
        await broker.remove(QueueName("q"))


async def test_ordering_keys_are_refused_at_declare_before_anything_is_made(rabbit: Harness) -> None:
    with pytest.raises(InvalidSetting, match="message_ordering"):
        await rabbit.declare(GroupSpec(name=GroupName("g"), message_ordering=True))
    assert await rabbit.broker.stats() == []


async def test_a_queue_that_somebody_deleted_is_declared_again_by_the_next_publish(
    rabbit: Harness, node: RabbitNode
) -> None:
    await rabbit.declare()
    name = raw.of(rabbit).names.group("orders", "default")
    async with raw.channel(node.url) as channel:
        await channel.call(commands.Queue.Delete(queue=name))
    await rabbit.publish("a")
    assert await rabbit.ids() == ["a"]


async def test_queue_concurrency_is_how_many_messages_the_server_sends_ahead(node: RabbitNode, tmp_path: Path) -> None:
    async with birthdays(node, tmp_path) as broker:
        listener = broker.listen([(BIRTHDAYS, GROUP)])
        await listener.wait(timedelta(milliseconds=50))
        await broker.publish([seal(Message(queue=BIRTHDAYS, type="birthday")) for _ in range(12)])
        await eventually(lambda: len(broker._consumer((BIRTHDAYS, GROUP)).buffer) == 7, what="seven sent ahead")
        listener.close()
