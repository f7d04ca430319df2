"""One entry per environment variable of the specifications: what setting it changes in the running system.

An entry is a function that sets the variable (in its own unit, to something else than its default), runs the system and
looks. A variable gets its entry together with its effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from godwit.core.clock import from_ms, utc_now
from godwit.core.errors import BrokerUnavailable, InvalidSchedule
from godwit.core.failures.failure import FailureKind
from godwit.core.messages.message import Message
from godwit.telemetry.alerts import Alert, AlertName
from godwit.testing import run_until_empty
from tests.config.effects.rabbitmq import queue_concurrency, rabbitmq_url_and_names
from tests.config.effects.running_systems import Q, World, soon
from tests.config.effects.scheduler_and_retention import (
    cron_minute_schedule,
    monitoring_retention_days,
    scheduler_cleanup_interval,
    scheduler_precision_minutes,
)
from tests.servers.redis import redis_server

Effect = Callable[[World], Awaitable[None]]


async def queue_default_ttl(world: World) -> None:
    world.set(QUEUE_DEFAULT_TTL="7")
    mq = world.in_memory()
    mq.consumer(Q)(nothing)
    async with mq:
        await mq.enqueue(Message(queue=Q, created_at=from_ms(mq.clock.now_ms())))
        mq.clock.advance(timedelta(seconds=8))
        ran = await run_until_empty(mq)
        (letter,) = await mq.broker.dead_letters.page(Q)
    assert (ran.handled, letter.kind) == (0, FailureKind.EXPIRED)


async def queue_max_retries(world: World) -> None:
    world.set(QUEUE_MAX_RETRIES="5", QUEUE_RETRY_DELAY="1000")
    delays, letters = await world.failing()
    assert len(delays) == 5, "retries, beside the first try"
    assert letters[0].failures == 6


async def max_retries(world: World) -> None:
    world.set(MAX_RETRIES="2")
    delays, letters = await world.failing()
    assert len(delays) == 1
    assert letters[0].failures == 2, "failures, the first included"


async def queue_retry_delay(world: World) -> None:
    world.set(QUEUE_RETRY_DELAY="2500")
    assert (await world.failing())[0][0] == 2.5


async def queue_retry_backoff(world: World) -> None:
    world.set(QUEUE_RETRY_BACKOFF="linear", QUEUE_RETRY_DELAY="2000", MAX_RETRIES="4")
    assert (await world.failing())[0] == [2, 4, 6]


async def queue_batch_size(world: World) -> None:
    world.set(QUEUE_BATCH_SIZE="3")
    sizes: list[int] = []

    async def handler(messages: list[Message]) -> None:
        sizes.append(len(messages))

    async with world.declared() as mq:
        await mq.enqueue_many([Message(queue=Q) for _ in range(6)])
    async with world.at_work(handler, batch=True):
        await soon(lambda: sum(sizes) == 6)
    assert sizes == [3, 3]


async def queue_processing_timeout(world: World) -> None:
    world.set(QUEUE_PROCESSING_TIMEOUT="100", MAX_RETRIES="1")
    await stopped_after_its_time(world)


async def consumer_processing_timeout(world: World) -> None:
    world.set(CONSUMER_PROCESSING_TIMEOUT="100", QUEUE_PROCESSING_TIMEOUT="60000", MAX_RETRIES="1")
    await stopped_after_its_time(world)


async def stopped_after_its_time(world: World) -> None:
    async def handler(_: Message) -> None:
        await asyncio.Event().wait()

    async with world.at_work(handler) as mq:
        await mq.enqueue(Message(queue=Q))
        letters: list[Any] = []
        while not letters:
            await asyncio.sleep(0.05)
            letters = await mq.broker.dead_letters.page(Q)
    assert letters[0].kind is FailureKind.EXPIRED
    assert "0.1 s" in letters[0].errors[0].message


async def queue_heartbeat_interval(world: World) -> None:
    world.set(QUEUE_HEARTBEAT_INTERVAL="100")
    await beats(world, 100)


async def consumer_heartbeat_interval(world: World) -> None:
    world.set(CONSUMER_HEARTBEAT_INTERVAL="50", QUEUE_HEARTBEAT_INTERVAL="60000")
    await beats(world, 50)


async def beats(world: World, interval_ms: int) -> None:
    async with world.at_work(nothing) as mq:
        heard: set[int] = set()
        while len(heard) < 4:
            await asyncio.sleep(0.02)
            for one in await mq.instances():
                assert one.interval_ms == interval_ms
                heard.add(one.last_heartbeat_ms)


async def consumer_max_concurrency(world: World) -> None:
    world.set(CONSUMER_MAX_CONCURRENCY="3")
    running, seen, may_end = 0, list[int](), asyncio.Event()

    async def handler(_: Message) -> None:
        nonlocal running
        running += 1
        seen.append(running)
        await may_end.wait()
        running -= 1

    async with world.at_work(handler) as mq:
        await mq.enqueue_many([Message(queue=Q) for _ in range(12)])
        await soon(lambda: running == 3)
        may_end.set()
        await soon(lambda: len(seen) == 12)
    assert max(seen) == 3


async def consumer_health_check_interval(world: World) -> None:
    world.set(CONSUMER_HEALTH_CHECK_INTERVAL="50")
    asked: list[bool] = []

    async def health() -> None:
        asked.append(True)

    async with world.at_work(nothing, health_check=health):
        await soon(lambda: len(asked) > 5)


async def monitoring_metrics_interval(world: World) -> None:
    world.set(MONITORING_METRICS_INTERVAL="50")
    async with world.declared() as mq:
        await mq.enqueue(Message(queue=Q))
        await soon(lambda: 'queue_depth{queue="q",group="default"} 1' in mq.metrics.render())


async def monitoring_alert_thresholds(world: World) -> None:
    world.set(MONITORING_ALERT_THRESHOLDS='{"queue_depth": 2}', MONITORING_METRICS_INTERVAL="50")
    heard: list[Alert] = []
    async with world.declared() as mq:
        mq.on_alert(heard.append)
        await mq.enqueue_many([Message(queue=Q) for _ in range(3)])
        await soon(lambda: heard)
    assert (heard[0].name, heard[0].value, heard[0].threshold) == (AlertName.HIGH_QUEUE_DEPTH, 3, 2)


async def app_version(world: World) -> None:
    world.set(APP_VERSION="7.1.3")
    async with world.manager() as mq:
        assert (await mq.monitor.get_health_status()).version == "7.1.3"


async def visibility_timeout(world: World) -> None:
    world.set(VISIBILITY_TIMEOUT="300000")
    async with world.declared() as mq:
        await mq.enqueue(Message(queue=Q))
        (delivery,) = await mq.dequeue(Q)
    assert delivery.lease_until_ms - delivery.delivered_at_ms == 300_000


async def redis_url(world: World) -> None:
    with redis_server() as server, server.client() as client:
        world.set(REDIS_URL=f"127.0.0.1:{server.port}")
        await kept_by(world, client)


async def redis_host_and_port(world: World) -> None:
    with redis_server() as server, server.client() as client:
        world.set(REDIS_HOST="127.0.0.1", REDIS_PORT=str(server.port))
        await kept_by(world, client)


async def redis_password(world: World) -> None:
    with redis_server(password="hush") as server, server.client() as client:
        world.set(REDIS_HOST="127.0.0.1", REDIS_PORT=str(server.port), REDIS_PASSWORD="wrong")
        with pytest.raises(BrokerUnavailable):
            await kept_by(world, client)
        world.set(REDIS_PASSWORD="hush")
        await kept_by(world, client)


async def redis_db(world: World) -> None:
    with redis_server() as server, server.client(db=3) as client:
        world.set(REDIS_HOST="127.0.0.1", REDIS_PORT=str(server.port), REDIS_DB="3")
        await kept_by(world, client)


async def kept_by(world: World, client: Any) -> None:
    """See that the manager keeps its messages in this database."""
    assert client.dbsize() == 0
    async with world.declared() as mq:
        await mq.enqueue(Message(queue=Q))
        assert client.dbsize() > 0


async def redis_max_connections(world: World) -> None:
    with redis_server() as server, server.client() as client:
        world.set(REDIS_URL=server.url, REDIS_MAX_CONNECTIONS="2")
        others = len(client.client_list())
        async with world.declared() as mq:
            await asyncio.gather(*(mq.broker.shared.get(f"key{number}") for number in range(200)))
            mine = len(client.client_list()) - others
        assert 0 < mine <= 2 + BLOCKING, "beside those that only wait for messages"


BLOCKING = 2


async def redis_consumer_id(world: World) -> None:
    from tests.config.effects.processes import names_of_workers

    world.set(REDIS_CONSUMER_ID="collector-1")
    assert await names_of_workers(world) == {"collector-1"}


async def nothing(_: Any) -> None:
    """Handle a message."""


async def scheduler_max_future_days(world: World) -> None:
    world.set(SCHEDULER_MAX_FUTURE_DAYS="3")
    async with world.declared() as mq:
        await mq.schedule_message(Message(queue=Q), utc_now() + timedelta(days=2))
        with pytest.raises(InvalidSchedule):
            await mq.schedule_message(Message(queue=Q), utc_now() + timedelta(days=4))


async def redis_stream_and_group(world: World) -> None:
    with redis_server() as server, server.client() as client:
        world.set(REDIS_URL=server.url, REDIS_STREAM="measurements", REDIS_GROUP="savers")
        async with world.manager() as mq:
            client.xadd("measurements", {"payload": '{"n": 2}'})
            (delivery,) = await mq.dequeue("measurements", "savers", wait=timedelta(seconds=5))
            assert delivery.open().payload == {"n": 2}


EFFECTS: dict[str, Effect] = {
    "REDIS_HOST": redis_host_and_port,
    "REDIS_PORT": redis_host_and_port,
    "REDIS_PASSWORD": redis_password,
    "REDIS_DB": redis_db,
    "REDIS_MAX_CONNECTIONS": redis_max_connections,
    "QUEUE_DEFAULT_TTL": queue_default_ttl,
    "QUEUE_MAX_RETRIES": queue_max_retries,
    "QUEUE_BATCH_SIZE": queue_batch_size,
    "QUEUE_PROCESSING_TIMEOUT": queue_processing_timeout,
    "QUEUE_HEARTBEAT_INTERVAL": queue_heartbeat_interval,
    "CONSUMER_MAX_CONCURRENCY": consumer_max_concurrency,
    "CONSUMER_PROCESSING_TIMEOUT": consumer_processing_timeout,
    "CONSUMER_HEARTBEAT_INTERVAL": consumer_heartbeat_interval,
    "CONSUMER_HEALTH_CHECK_INTERVAL": consumer_health_check_interval,
    "MONITORING_METRICS_INTERVAL": monitoring_metrics_interval,
    "MONITORING_ALERT_THRESHOLDS": monitoring_alert_thresholds,
    "MONITORING_RETENTION_DAYS": monitoring_retention_days,
    "SCHEDULER_PRECISION_MINUTES": scheduler_precision_minutes,
    "SCHEDULER_MAX_FUTURE_DAYS": scheduler_max_future_days,
    "SCHEDULER_CLEANUP_INTERVAL": scheduler_cleanup_interval,
    "APP_VERSION": app_version,
    "RABBITMQ_URL": rabbitmq_url_and_names,
    "RABBITMQ_QUEUE_NAME": rabbitmq_url_and_names,
    "RABBITMQ_DLQ_NAME": rabbitmq_url_and_names,
    "RABBITMQ_EXCHANGE_NAME": rabbitmq_url_and_names,
    "RABBITMQ_DLX_NAME": rabbitmq_url_and_names,
    "QUEUE_CONCURRENCY": queue_concurrency,
    "QUEUE_RETRY_DELAY": queue_retry_delay,
    "QUEUE_RETRY_BACKOFF": queue_retry_backoff,
    "CRON_MINUTE_SCHEDULE": cron_minute_schedule,
    "REDIS_URL": redis_url,
    "REDIS_STREAM": redis_stream_and_group,
    "REDIS_GROUP": redis_stream_and_group,
    "REDIS_CONSUMER_ID": redis_consumer_id,
    "VISIBILITY_TIMEOUT": visibility_timeout,
    "MAX_RETRIES": max_retries,
}
