"""A call costs the same however much there is: counted in calls of Python functions, not in time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from godwit.messagequeue import MessageQueue, SubscriptionOptions
from tests.messagequeue.builders import message, subscribe


def function_calls(work: Callable[[], None]) -> int:
    """Return how many functions, Python's and C's, `work` calls."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    former = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(former)
    return calls


def one_message(queue: MessageQueue) -> None:
    queue.publish("test-topic", [message(key="key")])
    (pulled,) = queue.pull("sub", 1)
    queue.modify_ack_deadline(pulled.ack_id, 60)
    queue.ack(pulled.ack_id)


def test_publish_pull_and_ack_cost_the_same_with_many_messages_keys_topics_and_subscriptions(
    queue: MessageQueue,
) -> None:
    subscribe(queue, "sub", options=SubscriptionOptions(ack_deadline_seconds=600, message_ordering=True))
    one_message(queue)
    alone = function_calls(lambda: one_message(queue))
    for number in range(500):
        subscribe(queue, f"other-{number}", topic=f"topic-{number}")
        queue.publish(f"topic-{number}", [message()])
        queue.pull(f"other-{number}", 1)
    queue.publish("test-topic", [message(str(number), f"key-{number}") for number in range(9_000)])
    queue.pull("sub", 4_000)
    assert function_calls(lambda: one_message(queue)) <= alone * 1.2
