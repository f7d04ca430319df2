"""Many threads at once, the clean-up thread, and what a long life leaves behind."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sized
from datetime import timedelta

import pytest

from godwit.brokers.memory.group import MemoryGroup
from godwit.core.clock import ManualClock
from godwit.core.names import QueueName
from godwit.messagequeue import InternalMessage, MessageQueue, SubscriptionOptions
from godwit.messagequeue.subscription import JOURNAL_BYTES
from tests.messagequeue.builders import message, numbered, subscribe
from tests.waiting import eventually

OFTEN = timedelta(milliseconds=10)


def together(count: int, work: Callable[[int], None]) -> None:
    """Run `work` in so many threads that begin at the same moment; raise what any of them raised."""
    barrier = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_br_001_threads_that_race_for_the_first_instance_get_the_same_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    slow = MessageQueue.__init__

    def counted(self: MessageQueue, **arguments: ManualClock) -> None:
        made.append(self)
        threading.Event().wait(0.01)  # long enough for all others to arrive
        slow(self, **arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(MessageQueue, "__init__", counted)
    for _ in range(5):
        MessageQueue.reset_instance()
        made.clear()
        got: list[MessageQueue] = []
        together(32, lambda _, got=got: got.append(MessageQueue.get_instance()))  # type: ignore[misc]
        assert len(got) == 32
        assert set(map(id, got)) == {id(made[0])}
        assert len(made) == 1
    MessageQueue.reset_instance()


def test_eight_threads_ack_each_of_20_000_messages_exactly_once() -> None:
    queue = MessageQueue()
    subscribe(queue, "sub", options=SubscriptionOptions(ack_deadline_seconds=600))
    threads, each = 8, 2_500
    published: list[list[str]] = [[] for _ in range(threads)]
    acked: list[list[str]] = [[] for _ in range(threads)]

    def work(number: int) -> None:
        left = each
        finished = 0
        while finished < threads * each:
            if left:
                published[number] += queue.publish("test-topic", numbered(10))
                left -= 10
            for place, one in enumerate(queue.pull("sub", 7)):
                if place == 3 and one.delivery_attempt == 1:
                    queue.nack(one.ack_id)
                    continue
                queue.modify_ack_deadline(one.ack_id, 600)
                queue.ack(one.ack_id)
                acked[number].append(one.id)
            finished = sum(map(len, acked))

    together(threads, work)
    counted = Counter(one for ids in acked for one in ids)
    assert counted == Counter(one for ids in published for one in ids)
    assert set(counted.values()) == {1}
    assert len(counted) == 20_000
    assert queue.get_stats("sub").messages == 0
    queue.close()


def test_threads_may_register_and_unregister_while_others_publish_and_pull() -> None:
    queue = MessageQueue()
    subscribe(queue, "steady")
    received: list[InternalMessage] = []

    def work(number: int) -> None:
        for round_ in range(100):
            if number == 0:
                queue.publish("test-topic", numbered(5))
            elif number == 1:
                for one in queue.pull("steady", 10):
                    queue.ack(one.ack_id)
                    received.append(one)
            else:
                name = f"sub-{number}"
                queue.register_subscription(name, "test-topic")
                queue.pull(name, 3)
                queue.get_all_subscriptions()
                if round_ < 99:
                    queue.unregister_subscription(name)

    together(6, work)
    received += queue.pull("steady", 1_000)
    assert len({one.id for one in received}) == 500
    assert [one.publish_time_ns for one in received] == sorted(one.publish_time_ns for one in received)
    queue.close()


async def test_one_thread_cleans_up_while_leases_exist_and_nobody_calls(clock: ManualClock) -> None:
    queue = MessageQueue(clock=clock, clean_up_every=OFTEN)
    subscribe(queue, "sub")
    queue.publish("test-topic", numbered(2))
    await eventually(lambda: janitors() == 0, what="the end of the threads of earlier tests")
    queue.pull("sub", 1)
    queue.pull("sub", 1)
    assert janitors() == 1
    subscription = queue._topics.subscriptions["sub"]
    assert len(subscription.leases) == 2
    clock.advance(timedelta(seconds=10))
    await eventually(lambda: not subscription.leases, what="taking back the leases without a call")
    await eventually(lambda: janitors() == 0, what="the end of the thread without leases")
    queue.pull("sub", 1)
    assert janitors() == 1
    queue.close()
    await eventually(lambda: janitors() == 0, what="the end of the thread with its queue")


def test_the_clean_up_thread_looks_every_60_seconds_unless_told(queue: MessageQueue) -> None:
    assert queue._cleaner._interval_seconds == 60


async def test_the_clean_up_thread_keeps_no_forgotten_queue_alive() -> None:
    queue = MessageQueue(clean_up_every=OFTEN)
    subscribe(queue, "sub", options=SubscriptionOptions(ack_deadline_seconds=600))
    queue.publish("test-topic", [message()])
    queue.pull("sub", 1)
    topics = queue._topics
    began_ms = topics._cleaned_up_ms
    await eventually(lambda: topics._cleaned_up_ms > began_ms, what="the first look of the thread")
    gone = weakref.ref(queue)
    del queue
    await eventually(lambda: gc.collect() >= 0 and gone() is None, what="the end of the queue")
    await eventually(lambda: janitors() == 0, what="the end of its thread")


def janitors() -> int:
    return sum(thread.name == "godwit-messagequeue-janitor" for thread in threading.enumerate())


def held_by(group: MemoryGroup) -> dict[str, int]:
    """Return the sizes of everything in a group that holds copies."""
    parts: tuple[Sized, ...] = (group.by_id, group.keys, group.leases, group.letters, group.delayed, group.expiring)
    sizes = dict(zip(("by_id", "keys", "leases", "letters", "delayed", "expiring"), map(len, parts), strict=True))
    sizes["lanes"] = sum(map(len, group.lanes))
    sizes["again"] = sum(map(len, group.again))
    return sizes


def test_br_020_after_100_000_messages_nothing_is_left_behind(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "plain")
    subscribe(queue, "ordered", options=SubscriptionOptions(message_ordering=True))
    batch = [message(str(number), str(number % 50) if number % 2 else None) for number in range(250)]
    handled = 0
    for round_ in range(200):
        queue.publish("test-topic", batch)
        for name in ("plain", "ordered"):
            while pulled := queue.pull(name, 100):
                for place, one in enumerate(pulled):
                    if place == 7 and one.delivery_attempt == 1:
                        queue.nack(one.ack_id)
                    else:
                        queue.ack(one.ack_id)
                        handled += 1
        clock.advance(timedelta(milliseconds=round_))
    assert handled == 100_000
    topics = queue._topics
    assert topics.engine._held == {}
    for name in ("plain", "ordered"):
        (group,) = topics.engine._queues[QueueName(name)].groups.values()
        assert set(held_by(group).values()) == {0}
        assert topics.subscriptions[name].leases == {}
        assert queue.get_stats(name).bytes == queue.get_stats(name).in_flight_bytes == 0
        assert topics.engine.shards[f"{name}#0"].size <= JOURNAL_BYTES
        assert len(topics.engine.shards[f"{name}#0"].chunks) < 2_000
    assert len(topics._due_times._heap) <= 100


def test_a_thousand_subscriptions_that_came_and_went_leave_nothing_behind(
    queue: MessageQueue, clock: ManualClock
) -> None:
    queue.register_topic("test-topic")
    for number in range(1_000):
        queue.register_subscription(f"sub-{number}", "test-topic")
        queue.publish("test-topic", [message()])
        queue.pull(f"sub-{number}", 1)
        clock.advance(timedelta(seconds=1))
        queue.unregister_subscription(f"sub-{number}")
    topics = queue._topics
    assert topics.engine._queues == {}
    assert topics.engine.shards == {}
    assert topics.engine._held == {}
    assert topics._due_times._planned == {}
    assert len(topics._due_times._heap) <= 100
