"""Dramatiq: its Redis broker and middleware as they come; messages are acknowledged after the handler."""

from __future__ import annotations

from collections.abc import Sequence

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers_side import URL, Payload, notes, obey

dramatiq.set_broker(RedisBroker(url=URL))


@dramatiq.actor(queue_name="peers")
def handle(found: Payload) -> None:
    notes.seen(found)


def many(payloads: Sequence[Payload]) -> None:
    """Publish one after the other: it has no bulk call."""
    for each in payloads:
        handle.send(each)


def produce() -> None:
    """Publish as ordered."""
    obey(handle.send, many)
