"""RQ: SimpleWorker, which does not fork for every job; no results are kept; enqueue_many for many."""

from __future__ import annotations

from collections.abc import Sequence

from redis import Redis
from rq import Queue

from benchmarks.peers_side import URL, Payload, notes, obey

queue = Queue("peers", connection=Redis.from_url(URL))


def handle(found: Payload) -> None:
    notes.seen(found)


def many(payloads: Sequence[Payload]) -> None:
    """Publish with its bulk call."""
    name = "benchmarks.peers_rq.handle"
    queue.enqueue_many([Queue.prepare_data(name, (each,), result_ttl=0) for each in payloads])


def produce() -> None:
    """Publish as ordered."""
    obey(lambda each: queue.enqueue("benchmarks.peers_rq.handle", each, result_ttl=0), many)
