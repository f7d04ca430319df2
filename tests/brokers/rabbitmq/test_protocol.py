"""The AMQP client: frames as others read them, one connection, separate channels, heartbeats, prefetch."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pamqp.frame
import pytest
from pamqp import commands
from pamqp.header import ContentHeader

from godwit.brokers.rabbitmq import RabbitMQBroker
from godwit.brokers.rabbitmq.amqp import frames
from godwit.brokers.rabbitmq.amqp.channel import CONFIRMED, REFUSED, UNROUTABLE, ConfirmWindow
from godwit.brokers.rabbitmq.amqp.connection import Connection
from godwit.brokers.rabbitmq.amqp.frames import Outgoing
from godwit.brokers.rabbitmq.amqp.reconnect import ReconnectingConnection
from godwit.brokers.rabbitmq.url import Address
from tests.brokers.rabbitmq import raw
from tests.conformance.harness import LONG, G, Harness, Q
from tests.servers.rabbitmq import RabbitNode
from tests.waiting import eventually

MESSAGE = Outgoing("exchange", "key", "id-1", "birthday", b"card", 3, b"x" * 300_000, 1_500)


def test_a_publish_is_persistent_mandatory_and_readable_by_any_client() -> None:
    data = frames.publish(7, MESSAGE, 131_072)
    sent: list[Any] = []
    while data:
        used, channel, frame = pamqp.frame.unmarshal(data)
        assert channel == 7
        sent.append(frame)
        data = data[used:]
    publish, header, *bodies = sent
    assert isinstance(publish, commands.Basic.Publish)
    assert (publish.exchange, publish.routing_key, publish.mandatory) == ("exchange", "key", True)
    assert isinstance(header, ContentHeader)
    properties = header.properties
    assert (properties.delivery_mode, properties.content_type) == (2, "application/json")
    assert (properties.message_id, properties.message_type, properties.expiration) == ("id-1", "birthday", "1500")
    assert properties.headers == {"x-godwit": "card", "x-godwit-attempt": 3}
    assert b"".join(body.value for body in bodies) == MESSAGE.body
    assert all(len(body.value) <= 131_072 - 8 for body in bodies)


def test_a_window_knows_what_was_confirmed_refused_and_returned() -> None:
    loop = asyncio.new_event_loop()
    sent = [MESSAGE._replace(message_id=f"m{n}", body=b"") for n in range(5)]
    window = ConfirmWindow(11, sent, loop.create_future())
    assert window.returned("m3", "key")
    assert not window.returned("m9", "key")
    window.mark(12, 13, REFUSED)
    window.mark(11, 15, CONFIRMED)
    assert not window.done.done()
    window.mark(11, 16, CONFIRMED)
    assert window.done.done()
    assert list(window.outcomes) == [CONFIRMED, REFUSED, CONFIRMED, UNROUTABLE, CONFIRMED]
    loop.close()


@pytest.mark.parametrize(
    ("url", "hosts", "vhost", "login"),
    [
        ("amqp://h", (("h", 5672),), "/", ("guest", "guest")),
        ("amqps://u:p%40ss@h/v%2F1", (("h", 5671),), "v/1", ("u", "p@ss")),
        ("amqp://u:p@a:1,b:2,[::1]:3/", (("a", 1), ("b", 2), ("::1", 3)), "/", ("u", "p")),
    ],
)
def test_a_url_names_hosts_virtual_host_and_login(
    url: str, hosts: tuple[tuple[str, int], ...], vhost: str, login: tuple[str, str]
) -> None:
    address = Address.from_url(url)
    assert (address.hosts, address.vhost, (address.user, address.password)) == (hosts, vhost, login)
    assert (address.heartbeat, address.max_length, address.wait_when_blocked) == (60, 100_000, True)
    assert "p@ss" not in address.shown


async def test_an_application_has_one_connection_with_separate_channels_and_a_heartbeat_of_60_seconds(
    node: RabbitNode, tmp_path: Path
) -> None:
    url = f"{node.url}?ledger={tmp_path / 'l.db'}&namespace={tmp_path.name}."
    address = Address.from_url(url)
    async with RabbitMQBroker(url) as broker:
        harness_like = await broker.connection()
        assert harness_like.address == address
        listed = await asyncio.to_thread(
            node.control, "list_connections", "client_properties", "timeout", "channels", "--formatter=json"
        )
        (ours,) = [one for one in json.loads(listed) if "godwit" in str(one["client_properties"])]
        assert ours["timeout"] == 60


async def test_a_worker_that_listens_is_sent_five_ahead_and_the_rest_is_for_others(rabbit: Harness) -> None:
    await rabbit.declare()
    other = await rabbit.another()
    assert isinstance(other, RabbitMQBroker)
    brokers = [raw.of(rabbit), other]
    listeners = [broker.listen([(Q, G)]) for broker in brokers]
    for listener in listeners:
        await listener.wait(timedelta(milliseconds=50))
    await eventually(lambda: all(broker._consumer((Q, G)).consuming for broker in brokers), what="two consumers")
    await rabbit.publish(*(f"m{n}" for n in range(20)))
    await eventually(lambda: [len(broker._consumer((Q, G)).buffer) for broker in brokers] == [5, 5], what="five each")
    publisher = await brokers[0].connection()
    assert len(publisher.channels) >= 2  # one to publish, one to consume
    deliveries = await brokers[0].pull(Q, G, worker="w", limit=3, lease=LONG)
    assert len(deliveries) == 3
    for listener in listeners:
        listener.close()


async def test_a_link_that_is_closed_while_it_comes_back_leaves_no_connection_open(node: RabbitNode) -> None:
    restored: list[Connection] = []

    async def restore(connection: Connection) -> None:
        restored.append(connection)
        if len(restored) > 1:
            await asyncio.Event().wait()  # a server that answers slowly

    link = ReconnectingConnection(Address.from_url(node.url), restore=restore, lost=lambda: None)
    await link.open()
    restored[0].abort()
    await eventually(lambda: len(restored) > 1, what="it comes back")
    await link.close()
    assert [one._transport.is_closing() for one in restored] == [True, True]
