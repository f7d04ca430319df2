"""Celery: acks_late for at-least-once, the larger prefetch its optimizing guide names for short tasks, no results."""

from __future__ import annotations

from collections.abc import Sequence

from celery import Celery

from benchmarks.peers_side import URL, Payload, notes, obey

app = Celery("peers", broker=URL)
app.conf.update(
    task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=128, worker_hijack_root_logger=False
)


@app.task(name="handle")
def handle(found: Payload) -> None:
    notes.seen(found)


def many(payloads: Sequence[Payload]) -> None:
    """Publish over one producer, as its documentation says for many messages."""
    with app.producer_pool.acquire(block=True) as producer:
        for each in payloads:
            handle.apply_async((each,), producer=producer)


def produce() -> None:
    """Publish as ordered."""
    obey(handle.delay, many)
