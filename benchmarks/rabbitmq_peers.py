"""Celery and Dramatiq on RabbitMQ with publisher confirms, run by `.venv-peers`: `rabbitmq_peers.py ORDER URL N`.

Prints the seconds that publishing `N` messages took, or that a worker took to do them.
"""

from __future__ import annotations

import sys
import time
from typing import Any

BODY = "x" * 300


def _nothing(_found: str) -> None:
    """Handle a message."""


def publish_celery(url: str, count: int) -> float:
    """Publish one after the other over one producer, as its documentation says for many messages."""
    from celery import Celery

    app = Celery("peers", broker=url)
    app.conf.update(broker_transport_options={"confirm_publish": True}, task_ignore_result=True, task_queues=None)
    app.conf.task_default_queue = "celery-peers"

    handle = app.task(_nothing, name="handle")
    with app.producer_pool.acquire(block=True) as producer:
        handle.apply_async((BODY,), producer=producer)
        began = time.perf_counter()
        for _ in range(count):
            handle.apply_async((BODY,), producer=producer)
        return time.perf_counter() - began


def _dramatiq(url: str) -> tuple[Any, Any]:
    import dramatiq
    from dramatiq.brokers.rabbitmq import RabbitmqBroker

    broker = RabbitmqBroker(url=url, confirm_delivery=True)
    dramatiq.set_broker(broker)

    return broker, dramatiq.actor(_nothing, actor_name="handle", queue_name="dramatiq-peers", broker=broker)


def publish_dramatiq(url: str, count: int) -> float:
    """Publish one after the other: it has no bulk call."""
    _, handle = _dramatiq(url)
    handle.send(BODY)
    began = time.perf_counter()
    for _ in range(count):
        handle.send(BODY)
    return time.perf_counter() - began


def consume_dramatiq(url: str, count: int) -> float:
    """Publish a backlog, then let a worker with its usual threads do it."""
    import dramatiq

    broker, handle = _dramatiq(url)
    for _ in range(count):
        handle.send(BODY)
    worker = dramatiq.Worker(broker)
    began = time.perf_counter()
    worker.start()
    broker.join("dramatiq-peers")
    worker.join()
    seconds = time.perf_counter() - began
    worker.stop()
    return seconds


ORDERS = {"publish-celery": publish_celery, "publish-dramatiq": publish_dramatiq, "consume-dramatiq": consume_dramatiq}

if __name__ == "__main__":
    print(ORDERS[sys.argv[1]](sys.argv[2], int(sys.argv[3])))
