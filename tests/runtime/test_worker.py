"""What a worker does with what its handlers do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from godwit.brokers.contract import Ack, Delivery
from godwit.brokers.memory import MemoryBroker
from godwit.core.failures.failure import ErrorType, FailureKind
from godwit.core.failures.judgement import BatchFailed, Permanent, Retry
from godwit.core.failures.retry import RetryPolicy, Strategy
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.journal.vocabulary import Event
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import FlowControl, GroupSpec, QueueSpec
from godwit.runtime.worker.consumer import Consumer, Handler, QueueConsumer
from godwit.runtime.worker.worker import Worker, WorkerSettings
from tests.waiting import eventually, real_time

Q = QueueName("q")
DEFAULT = GroupName("default")
ONCE_MORE = RetryPolicy(max_attempts=2, strategy=Strategy.IMMEDIATE)


@asynccontextmanager
async def at_work(
    handler: Handler, *, messages: int = 0, settings: WorkerSettings | None = None, **options: Any
) -> AsyncIterator[tuple[MemoryBroker, Worker]]:
    """Run a worker with one consumer of queue `q` on a fresh broker, with messages 0, 1, ... published before."""
    async with MemoryBroker() as broker:
        await broker.declare(QueueSpec(name=Q))
        await publish(broker, *range(messages))
        consumer = Consumer(handler=handler, queues=(Q,), **options)
        worker = Worker(broker, [consumer], settings=settings or WorkerSettings(grace=timedelta(seconds=5)))
        running = asyncio.create_task(worker.run())
        try:
            yield broker, worker
        finally:
            worker.stop()
            await running


async def publish(broker: MemoryBroker, *payloads: Any) -> None:
    if payloads:
        await broker.publish([seal(Message(queue=Q, id=MessageId(f"m{one}"), payload=one)) for one in payloads])


async def depth(broker: MemoryBroker) -> int:
    return (await broker.stats())[0].groups[0].depth


async def dead(broker: MemoryBroker) -> int:
    return (await broker.stats())[0].groups[0].dead


async def journal(broker: MemoryBroker, event: Event) -> list[dict[str, Any]]:
    chunks = await broker.journal.read("q#0", limit=100_000)
    return [row for chunk in chunks for row in rows_of(decode_chunk(chunk), "q#0") if row["event"] == event]


async def empty(broker: MemoryBroker) -> bool:
    return await depth(broker) == 0


async def test_every_message_is_handled_and_acked() -> None:
    seen: list[int] = []

    async def handler(message: Message) -> None:
        seen.append(message.payload)

    async with at_work(handler, messages=250) as (broker, _):
        await eventually(lambda: empty(broker))
        assert sorted(seen) == list(range(250))


async def test_a_plain_function_runs_in_a_thread() -> None:
    threads: set[str] = set()

    def handler(_: Message) -> None:
        threads.add(threading.current_thread().name)

    async with at_work(handler, messages=3) as (broker, _):
        await eventually(lambda: empty(broker))
    assert threads
    assert threading.main_thread().name not in threads


async def test_what_a_handler_returns_is_kept_in_the_journal() -> None:
    async def handler(_: Message) -> dict[str, str]:
        return {"transaction": "t-1"}

    async with at_work(handler, messages=1) as (broker, _):
        await eventually(lambda: empty(broker))
        (acked,) = await journal(broker, Event.ACKED)
        assert msgspec.json.decode(acked["result"]) == {"transaction": "t-1"}


@pytest.mark.parametrize("result", [object(), "x" * 5_000])
async def test_a_result_that_cannot_be_kept_does_not_fail_the_message(result: object) -> None:
    async def handler(_: Message) -> object:
        return result

    async with at_work(handler, messages=1) as (broker, _):
        await eventually(lambda: empty(broker))
        (acked,) = await journal(broker, Event.ACKED)
        assert acked["result"] is None
        assert await dead(broker) == 0


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyError("y"), SystemExit(3), asyncio.CancelledError(), Exception()]
)
async def test_whatever_a_handler_raises_is_a_failure_of_that_message_alone(error: BaseException) -> None:
    seen: list[int] = []

    async def handler(message: Message) -> None:
        seen.append(message.payload)
        if message.payload == 0:
            raise error

    async with at_work(handler, messages=2, retry_policy=ONCE_MORE) as (broker, _):
        await eventually(lambda: empty(broker))
        assert sorted(seen) == [0, 0, 1]
        (letter,) = await broker.dead_letters.page(Q)
        assert letter.kind is FailureKind.TRANSIENT
        assert letter.failures == 2
        assert type(error).__name__ in letter.errors[0].message or isinstance(error, asyncio.CancelledError)


async def test_permanent_makes_a_dead_letter_at_once() -> None:
    async def handler(_: Message) -> None:
        raise Permanent("this order does not exist")

    async with at_work(handler, messages=1) as (broker, _):
        await eventually(lambda: empty(broker))
        (letter,) = await broker.dead_letters.page(Q)
        assert (letter.kind, letter.attempt) == (FailureKind.PERMANENT, 1)
        assert "this order does not exist" in letter.errors[0].message
        assert letter.errors[0].traceback is not None
        assert "handler" in letter.errors[0].traceback


async def test_retry_after_chooses_its_own_delay() -> None:
    async def handler(_: Message) -> None:
        raise Retry("busy", after=timedelta(hours=3))

    async with at_work(handler, messages=1) as (broker, _):

        async def is_delayed() -> bool:
            return (await broker.stats())[0].groups[0].delayed == 1

        await eventually(is_delayed)
        (postponed,) = await journal(broker, Event.POSTPONED)
        assert postponed["ready_at"] - postponed["at"] == 3 * 3600 * 1000


async def test_a_handler_past_its_time_limit_is_stopped_and_the_last_try_is_dead_as_expired() -> None:
    stopped: list[int] = []

    async def handler(message: Message) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(message.payload)

    async with at_work(handler, messages=1, time_limit=timedelta(milliseconds=30), retry_policy=ONCE_MORE) as (
        broker,
        _,
    ):
        await eventually(lambda: empty(broker))
        assert stopped == [0, 0]
        (letter,) = await broker.dead_letters.page(Q)
        assert letter.kind is FailureKind.EXPIRED
        assert [error.type for error in letter.errors] == [ErrorType.TIMEOUT, ErrorType.TIMEOUT]


async def test_a_handler_that_blocks_the_event_loop_longer_than_its_lease_does_not_run_twice() -> None:
    seen: list[int] = []

    async def handler(message: Message) -> None:
        seen.append(message.payload)
        if message.payload == 0:
            time.sleep(1.0)  # noqa: ASYNC251 # the misbehaviour under test

    async with at_work(handler, messages=2, lease=timedelta(milliseconds=300), concurrency=1) as (broker, _):
        await eventually(lambda: empty(broker))
        assert seen == [0, 1]
        assert not await journal(broker, Event.LEASE_EXPIRED)


async def test_a_late_ack_after_the_lease_was_lost_changes_nothing() -> None:
    release = asyncio.Event()
    runs: list[int] = []

    async def handler(_: Message) -> None:
        runs.append(1)
        await release.wait()

    options: dict[str, Any] = {
        "lease": timedelta(milliseconds=200),
        "time_limit": timedelta(seconds=20),
        "concurrency": 1,
    }
    async with at_work(handler, messages=1, **options) as (broker, worker):
        await eventually(lambda: bool(runs))
        worker._renewer.stop()  # the renewing thread dies: the lease will be lost

        async def was_taken_back() -> bool:
            await broker.maintain()
            return bool(await journal(broker, Event.LEASE_EXPIRED))

        await eventually(was_taken_back)
        (other,) = await broker.pull(Q, DEFAULT, worker="other", limit=1, lease=timedelta(minutes=1))
        release.set()

        async def was_refused() -> bool:
            return bool(await journal(broker, Event.ACK_REFUSED))

        await eventually(was_refused)
        assert (await broker.stats())[0].groups[0].leased == 1
        assert await broker.settle([Ack(other.ack_id)]) == []


async def test_a_message_that_cannot_be_decoded_is_a_permanent_dead_letter_with_its_bytes() -> None:
    async def handler(_: Message) -> None:
        raise AssertionError("never called")

    async with at_work(handler) as (broker, _):
        await broker.publish([Envelope(MessageId("odd"), Q, b"\xff not json", 10, 0)])
        await eventually(lambda: _has_dead(broker))
        (letter,) = await broker.dead_letters.page(Q)
        assert letter.kind is FailureKind.PERMANENT
        assert letter.envelope.body == b"\xff not json"


async def _has_dead(broker: MemoryBroker) -> bool:
    return await dead(broker) > 0


async def test_a_type_nobody_handles_is_a_permanent_dead_letter() -> None:
    async def handler(_: Message) -> None:
        raise AssertionError("never called")

    settings = WorkerSettings(heartbeat_interval=timedelta(seconds=0.05))
    types = frozenset({"order.created"})
    async with at_work(handler, messages=1, types=types, settings=settings) as (broker, _):
        await eventually(lambda: _has_dead(broker))
        (letter,) = await broker.dead_letters.page(Q)
        assert letter.kind is FailureKind.PERMANENT
        assert "'message'" in letter.errors[0].message


async def test_stopping_finishes_what_fits_in_the_grace_time() -> None:
    begun = asyncio.Event()
    finish = asyncio.Event()

    async def handler(_: Message) -> None:
        begun.set()
        await finish.wait()

    async with at_work(handler, messages=1) as (broker, worker):
        await begun.wait()
        worker.stop()
        finish.set()
        await eventually(lambda: empty(broker))
        assert len(await journal(broker, Event.ACKED)) == 1


async def test_stopping_hands_back_what_does_not_fit_and_burns_no_attempt() -> None:
    begun = asyncio.Event()

    async def handler(_: Message) -> None:
        begun.set()
        await asyncio.Event().wait()

    settings = WorkerSettings(grace=timedelta(milliseconds=20))
    async with at_work(handler, messages=1, settings=settings) as (broker, worker):
        await begun.wait()
        worker.stop()
        await eventually(lambda: _handed_back(broker))
        (again,) = await broker.pull(Q, DEFAULT, worker="other", limit=1, lease=timedelta(minutes=1))
        assert (again.attempt, again.failures, again.crashes) == (1, 0, 0)


async def _handed_back(broker: MemoryBroker) -> bool:
    return bool(await journal(broker, Event.HANDED_BACK))


async def test_a_second_stop_leaves_without_waiting_for_handlers() -> None:
    begun = asyncio.Event()

    async def handler(_: Message) -> None:
        begun.set()
        await asyncio.Event().wait()

    settings = WorkerSettings(grace=timedelta(hours=1))
    async with at_work(handler, messages=1, settings=settings) as (broker, worker):
        await begun.wait()
        worker.stop()
        worker.stop()
        await eventually(lambda: _handed_back(broker))


async def test_no_more_handlers_run_than_there_are_slots() -> None:
    running = most = 0

    async def handler(_: Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    async with at_work(handler, messages=100, concurrency=7) as (broker, _):
        await eventually(lambda: empty(broker))
    assert most == 7


@pytest.mark.parametrize("flow", [FlowControl(max_messages=1), FlowControl(max_bytes=1)])
async def test_a_worker_held_up_by_flow_control_waits_and_goes_on_when_there_is_room(flow: FlowControl) -> None:
    async with MemoryBroker() as broker:
        await broker.declare(QueueSpec(name=Q), [GroupSpec(name=DEFAULT, flow_control=flow)])
        await publish(broker, *range(5))
        (held,) = await broker.pull(Q, DEFAULT, worker="other", limit=1, lease=timedelta(minutes=1))
        pulls = 0
        pull = broker.pull

        async def counted(*place: str, **options: Any) -> list[Delivery]:
            nonlocal pulls
            pulls += 1
            return await pull(*place, **options)

        broker.pull = counted  # type: ignore[method-assign]
        seen: list[int] = []

        async def handler(message: Message) -> None:
            seen.append(message.payload)

        worker = Worker(broker, [Consumer(handler=handler, queues=(Q,))])
        running = asyncio.create_task(worker.run())
        await eventually(lambda: pulls > 0)
        await real_time(timedelta(milliseconds=200))
        assert pulls < 10
        await broker.settle([Ack(held.ack_id)])
        await eventually(lambda: seen == [1, 2, 3, 4])
        worker.stop()
        await running


async def test_a_batch_handler_gets_lists_and_each_message_is_settled_by_itself() -> None:
    batches: list[list[int]] = []

    async def handler(messages: list[Message]) -> None:
        batches.append([message.payload for message in messages])
        raise BatchFailed({index: Permanent("odd") for index, one in enumerate(messages) if one.payload % 2})

    options: dict[str, Any] = {"batch": 10, "batch_timeout": timedelta(milliseconds=50)}
    async with at_work(handler, messages=25, **options) as (broker, _):
        await eventually(lambda: empty(broker))
        assert sorted(map(len, batches)) == [5, 10, 10]
        assert {letter.envelope.id for letter in await broker.dead_letters.page(Q)} == {
            f"m{n}" for n in range(1, 25, 2)
        }
        assert len(await journal(broker, Event.ACKED)) == 13


async def test_leases_are_renewed_while_a_batch_is_collected() -> None:
    batches: list[list[int]] = []

    async def handler(messages: list[Message]) -> None:
        batches.append([message.payload for message in messages])

    lease, timeout = timedelta(milliseconds=400), timedelta(milliseconds=1_600)
    options: dict[str, Any] = {"batch": 10, "batch_timeout": timeout, "lease": lease}
    async with at_work(handler, messages=3, **options) as (broker, _):
        await eventually(lambda: empty(broker))
        assert batches == [[0, 1, 2]]
        assert len(await journal(broker, Event.DELIVERED)) == 3, "each was delivered once"
        assert await journal(broker, Event.LEASE_EXPIRED) == []
        assert len(await journal(broker, Event.EXTENDED)) >= 3


async def test_a_batch_that_is_given_up_before_it_is_full_is_handed_back() -> None:
    async def handler(_: list[Message]) -> None:
        raise AssertionError("it never begins")

    options: dict[str, Any] = {"batch": 10, "batch_timeout": timedelta(seconds=60)}
    async with at_work(handler, messages=3, **options) as (broker, worker):
        await eventually(lambda: not worker.is_idle())
        worker.stop()
        worker.stop()

        async def handed_back() -> bool:
            return len(await journal(broker, Event.HANDED_BACK)) == 3

        await eventually(handed_back)


async def test_a_consumer_may_settle_inside_its_handler() -> None:
    class Careful(QueueConsumer):
        queues = ("q",)

        async def process_message(self, message: Message) -> None:
            if message.payload == 0:
                await self.acknowledge_message(message.id)
                raise ValueError("after the ack this changes nothing")
            await self.reject_message(message.id, "not ours", requeue=False)

    async with at_work(Careful().process_message, messages=2) as (broker, _):
        await eventually(lambda: empty(broker))
        assert len(await journal(broker, Event.ACKED)) == 1
        (letter,) = await broker.dead_letters.page(Q)
        assert letter.envelope.id == "m1"
        assert "not ours" in letter.errors[0].message
