"""What variables of RabbitMQ change, seen on a server from outside."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from pamqp import commands

from godwit.core.messages.message import Message
from tests.brokers.rabbitmq import raw
from tests.config.effects.running_systems import World
from tests.servers.rabbitmq import the_node
from tests.waiting import eventually

EXCHANGE: Final = "effects.party"
QUEUE: Final = "effects.guests"
NAMES: Final = {
    "RABBITMQ_EXCHANGE_NAME": EXCHANGE,
    "RABBITMQ_QUEUE_NAME": QUEUE,
    "RABBITMQ_DLX_NAME": "effects.over",
    "RABBITMQ_DLQ_NAME": "effects.left",
}


async def rabbitmq_url_and_names(world: World) -> None:
    url = _set(world)
    mq = world.manager()
    mq.consumer(EXCHANGE, group=QUEUE)(_nothing)
    async with mq, raw.channel(url) as channel:
        try:
            for exchange, spy in ((EXCHANGE, "effects.spy"), (NAMES["RABBITMQ_DLX_NAME"], "effects.undertaker")):
                await channel.call(commands.Queue.Declare(queue=spy, exclusive=True))
                for key in ("message", "dlq"):
                    await channel.call(commands.Queue.Bind(queue=spy, exchange=exchange, routing_key=key))
            await mq.enqueue(Message(queue=EXCHANGE))
            assert len(await channel.get("effects.spy", 5)) == 1
            await eventually(lambda: _has(url, QUEUE, 1))
            (delivery,) = await mq.dequeue(EXCHANGE, QUEUE, wait=timedelta(seconds=5))
            await mq.reject_message(delivery, "unknown guest", requeue=False)
            assert len(await channel.get("effects.undertaker", 5)) == 1
            await eventually(lambda: _has(url, NAMES["RABBITMQ_DLQ_NAME"], 1))
        finally:
            await mq.broker.remove(EXCHANGE)


async def queue_concurrency(world: World) -> None:
    url = _set(world, QUEUE_CONCURRENCY="3")
    mq = world.manager()
    mq.consumer(EXCHANGE, group=QUEUE)(_nothing)
    async with mq:
        try:
            await mq.enqueue_many([Message(queue=EXCHANGE) for _ in range(10)])
            listener = mq.broker.listen([(EXCHANGE, QUEUE)])
            await listener.wait(timedelta(seconds=5))
            await eventually(lambda: _has(url, QUEUE, 7), what="three sent ahead, seven kept by the server")
            listener.close()
        finally:
            await mq.broker.remove(EXCHANGE)


def _set(world: World, **more: str) -> str:
    url = the_node().url
    world.set(RABBITMQ_URL=f"{url}?ledger={world.folder / 'ledger.db'}", **NAMES, **more)
    return url


async def _has(url: str, queue: str, count: int) -> bool:
    return await raw.count(url, queue) == count


async def _nothing(_: Any) -> None:
    """Handle a message."""
