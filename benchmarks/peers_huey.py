"""Huey: Redis, no results. It takes a task off the list before it runs, so a killed worker loses it: at most once."""

from __future__ import annotations

from collections.abc import Sequence

from huey import RedisHuey

from benchmarks.peers_side import URL, Payload, notes, obey

huey = RedisHuey("peers", url=URL, results=False)


@huey.task()
def handle(found: Payload) -> None:
    notes.seen(found)


def many(payloads: Sequence[Payload]) -> None:
    """Publish one after the other: it has no bulk call."""
    for each in payloads:
        handle(each)


def produce() -> None:
    """Publish as ordered."""
    obey(handle, many)
