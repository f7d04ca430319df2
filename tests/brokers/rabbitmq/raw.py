"""RabbitMQ without Godwit's broker: what other programs send, and what a server shows of itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pamqp import commands

from godwit.brokers.rabbitmq import RabbitMQBroker
from godwit.brokers.rabbitmq.amqp.channel import Channel
from godwit.brokers.rabbitmq.amqp.connection import Connection
from godwit.brokers.rabbitmq.url import Address
from tests.conformance.harness import Harness


def of(harness: Harness) -> RabbitMQBroker:
    """Return the harness's broker as what it is."""
    broker = harness.broker
    assert isinstance(broker, RabbitMQBroker)
    return broker


@asynccontextmanager
async def channel(url: str) -> AsyncIterator[Channel]:
    """Give a channel of a connection of its own."""
    connection = await Connection.open(Address.from_url(url), lost=lambda _: None)
    try:
        yield await connection.channel(confirms=True)
    finally:
        await connection.close()


async def count(url: str, queue: str) -> int:
    """Return how many messages a queue of the server has ready."""
    async with channel(url) as one:
        answer: Any = await one.call(commands.Queue.Declare(queue=queue, passive=True))
        return int(answer.message_count)
