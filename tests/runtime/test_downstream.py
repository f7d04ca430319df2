"""Workers whose downstream refuses, is slow or is away, over every broker: nothing is lost and no attempt is burnt."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from godwit.brokers.contract import Broker
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.failures.breaker import Breaker, BreakerRule
from godwit.core.failures.failure import ErrorType, FailureKind
from godwit.core.failures.judgement import RateLimited, Retry
from godwit.core.failures.retry import RetryPolicy, Strategy
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.messages.envelope import seal_all
from godwit.core.messages.message import Message
from godwit.core.names import DEFAULT_GROUP, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.runtime.worker.consumer import Consumer
from godwit.runtime.worker.worker import Worker, WorkerSettings
from tests.conformance.harness import Harness
from tests.waiting import eventually, real_time

QUEUE = QueueName("mail")
WITHIN = timedelta(seconds=60)
ALL = [*("memory", "sqlite", "redis"), pytest.param("rabbitmq", marks=pytest.mark.xdist_group("rabbitmq"))]
STORM = ["memory", "sqlite", "redis"]


@pytest.fixture
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Broker]:
    """Give a broker in real time with the queue `mail`."""
    harness = Harness(request.param, tmp_path, live=True)
    await harness.start()
    await harness.broker.declare(QueueSpec(name=QUEUE), [GroupSpec(name=DEFAULT_GROUP)])
    yield harness.broker
    await harness.finish()


@asynccontextmanager
async def worker(broker: Broker, handler: Callable[[Message], Any], **options: Any) -> AsyncIterator[Worker]:
    """Run a worker until the block ends."""
    settings = WorkerSettings(grace=timedelta(seconds=1), breaker=options.pop("rule", BreakerRule()))
    running = Worker(broker, [Consumer(handler=handler, queues=(QUEUE,), **options)], settings=settings)
    task = asyncio.create_task(running.run())
    try:
        yield running
    finally:
        running.stop()
        await task


async def publish(broker: Broker, payloads: Sequence[Any]) -> None:
    await broker.publish(seal_all([Message(queue=QUEUE, payload=payload) for payload in payloads]))


async def depth(broker: Broker) -> int:
    (queue,) = await broker.stats()
    return queue.groups[0].depth


async def rows(broker: Broker, event: str) -> list[dict[str, Any]]:
    found = []
    for shard in await broker.journal.shards():
        for chunk in await broker.journal.read(shard, limit=1_000_000):
            found += [row for row in rows_of(decode_chunk(chunk), shard) if row["event"] == event]
    return found


@pytest.mark.parametrize("broker", ALL, indirect=True)
@pytest.mark.parametrize("breaker", [None, Breaker("smtp")], ids=["no breaker", "breaker"])
async def test_messages_with_a_bug_do_not_hold_up_the_good_ones(broker: Broker, breaker: Breaker | None) -> None:
    done: set[str] = set()

    async def handler(message: Message) -> None:
        if "name" not in message.payload:
            raise KeyError("name")
        done.add(message.payload["name"])

    await publish(broker, [{}] * 12 + [{"name": f"n{number}"} for number in range(100)])
    async with worker(broker, handler, breaker=breaker):
        began = time.monotonic()
        await eventually(lambda: len(done) == 100, within=WITHIN)
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("broker", ALL, indirect=True)
async def test_a_downstream_that_is_away_stops_pulling_burns_no_attempts_and_comes_back(broker: Broker) -> None:
    is_away, calls, done = True, 0, set[int]()

    async def handler(message: Message) -> None:
        nonlocal calls
        calls += 1
        if is_away:
            raise ConnectionError("no route to the mail server")
        done.add(message.payload)

    rule = BreakerRule(failure_threshold=5, reset_timeout=timedelta(seconds=0.5))
    policy = RetryPolicy(max_attempts=3, strategy=Strategy.FIXED, initial_delay=timedelta(seconds=0.1))
    await publish(broker, range(40))
    async with worker(broker, handler, breaker=Breaker("smtp"), rule=rule, retry_policy=policy, concurrency=5):
        await eventually(lambda: calls > 7, within=WITHIN)
        assert calls < 40, "an open breaker pulls nothing but its probes"
        is_away = False
        await eventually(lambda: len(done) == 40, within=WITHIN)
    (queue,) = await broker.stats()
    assert queue.groups[0].dead == 0
    assert max(row["failures"] for row in await rows(broker, "acked")) == 1
    assert await rows(broker, "postponed"), "the failed probes counted as no failure"


@pytest.mark.parametrize("broker", STORM, indirect=True)
async def test_a_storm_of_429_loses_nothing_and_burns_no_attempt(broker: Broker) -> None:
    """The provider takes 400 messages in each half second; three workers do not know that."""
    times, done, refused = Counter[int](), Counter[int](), 0

    async def handler(message: Message) -> None:
        nonlocal refused
        now = time.monotonic()
        window, left = int(now * 2), 0.5 - now % 0.5
        if times[window] >= 400:
            refused += 1
            raise RateLimited("429 of the provider", after=left)
        times[window] += 1
        done[message.payload] += 1

    policy = RetryPolicy(max_attempts=1)
    async with (
        worker(broker, handler, concurrency=50, retry_policy=policy),
        worker(broker, handler, concurrency=50, retry_policy=policy),
        worker(broker, handler, concurrency=50, retry_policy=policy),
    ):
        await publish(broker, range(1_000))
        await eventually(lambda: len(done) == 1_000, within=WITHIN)

        async def empty() -> bool:
            return await depth(broker) == 0

        await eventually(empty, within=WITHIN)
    (queue,) = await broker.stats()
    assert (queue.groups[0].dead, set(done.values())) == (0, {1})
    acked = await rows(broker, "acked")
    assert {(row["failures"], row["crashes"]) for row in acked} == {(0, 0)}
    assert len(await rows(broker, "postponed")) == refused > 0
    assert await rows(broker, "nacked") == []
    assert refused < 600, "a group that is told to wait does not try with every message"


@pytest.mark.parametrize("broker", ALL, indirect=True)
async def test_a_rate_limit_holds_for_the_other_workers_and_can_be_lifted(broker: Broker) -> None:
    seen: list[str] = []

    async def limited(_: Message) -> None:
        seen.append("first")
        raise RateLimited("429", after=timedelta(hours=2))

    async def ready(_: Message) -> None:
        seen.append("other")

    async with worker(broker, limited) as first:
        await publish(broker, ["x"])
        await eventually(lambda: first.held_back_until_ms() is not None, within=WITHIN)
    async with worker(broker, ready) as other:
        await eventually(lambda: other.held_back_until_ms() is not None, within=WITHIN)
        await publish(broker, ["y"])
        await real_time(timedelta(seconds=0.3))
        assert seen == ["first"]
        await broker.shared.delete(f"gate/rate/{QUEUE}#{DEFAULT_GROUP}")
        await eventually(lambda: seen == ["first", "other"], within=WITHIN)


@pytest.mark.parametrize("broker", ALL, indirect=True)
async def test_postponements_have_a_limit_of_their_own(broker: Broker) -> None:
    tries = 0

    async def handler(_: Message) -> None:
        nonlocal tries
        tries += 1
        raise Retry("not yet", after=0.01)

    async def dead() -> bool:
        (queue,) = await broker.stats()
        return queue.groups[0].dead == 1

    policy = RetryPolicy(max_attempts=1, max_postponements=3)
    await publish(broker, ["x"])
    async with worker(broker, handler, retry_policy=policy):
        await eventually(dead, within=WITHIN)
    (letter,) = await broker.dead_letters.page(QUEUE)
    assert (tries, letter.attempt, letter.failures, letter.kind) == (4, 4, 1, FailureKind.TRANSIENT)
    first, last = letter.errors
    assert (first.type, last.type) == (ErrorType.POSTPONED, ErrorType.POSTPONED)
    assert last.message.startswith("postponed 3 times since ")
    assert first.timestamp.timestamp() * 1000 <= SYSTEM_CLOCK.now_ms()
