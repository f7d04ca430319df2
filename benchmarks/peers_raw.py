"""The raw loop as a side of the comparison."""

from __future__ import annotations

import json
from collections.abc import Sequence

from benchmarks.peers_side import URL, Payload, notes, obey
from benchmarks.raw_redis import RawStream


def produce() -> None:
    """Publish as ordered."""
    stream = RawStream(URL)

    def many(payloads: Sequence[Payload]) -> None:
        stream.publish([json.dumps(each).encode() for each in payloads])

    obey(lambda each: stream.publish_one(json.dumps(each).encode()), many)


def work() -> None:
    """Handle until killed."""
    stream = RawStream(URL)
    while True:
        stream.wait_and_handle(lambda body: notes.seen(json.loads(body)))


if __name__ == "__main__":
    work()
