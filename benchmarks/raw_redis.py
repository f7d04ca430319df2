"""The bare loops the Redis broker is measured against. Frozen: change the broker, not these.

Plain commands through redis-py (synchronous, hiredis parser, one connection), as somebody would write them who wants
Streams and nothing else. They have what at-least-once needs on the server and no more: no leases, delays, priorities,
deduplication, dead letters, limits, journal or wake-ups, and a crashed consumer's entries wait until somebody claims
them.

Settings: pipelines of 100 without MULTI; XREADGROUP COUNT 100; one pipeline of XACK + XDEL per batch; bodies of 200
bytes in one field; the same server and append-only settings as the broker in the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, Final, cast

from redis import Redis

STREAM: Final = "raw"
GROUP: Final = "raw"
CONSUMER: Final = "one"
BATCH: Final = 100
FIELD: Final = b"b"


class RawStream:
    """One stream with one group."""

    def __init__(self, url: str, stream: str = STREAM) -> None:
        self._client = Redis.from_url(url)
        self._stream = stream
        if not self._client.exists(stream):
            self._client.xgroup_create(stream, GROUP, id="0", mkstream=True)

    def publish(self, bodies: Sequence[bytes]) -> None:
        """Add messages in pipelines of a hundred."""
        for start in range(0, len(bodies), BATCH):
            pipeline = self._client.pipeline(transaction=False)
            for body in bodies[start : start + BATCH]:
                pipeline.xadd(self._stream, {FIELD: body})
            pipeline.execute()

    def publish_one(self, body: bytes) -> None:
        """Add one message and wait for the answer."""
        self._client.xadd(self._stream, {FIELD: body})

    def pull(self, limit: int = BATCH, block_ms: int | None = None) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """Read messages never delivered before."""
        found = cast(
            "list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]]",
            self._client.xreadgroup(GROUP, CONSUMER, {self._stream: ">"}, count=limit, block=block_ms),
        )
        return found[0][1] if found else []

    def ack(self, entries: Sequence[bytes]) -> None:
        """Acknowledge and delete: XACK alone would let the stream grow for ever."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.xack(self._stream, GROUP, *entries)
        pipeline.xdel(self._stream, *entries)
        pipeline.execute()

    def drain(self, count: int, handle: Callable[[bytes], Any]) -> None:
        """Handle so many messages, one call each."""
        left = count
        while left:
            entries = self.pull()
            for _, fields in entries:
                handle(fields[FIELD])
            self.ack([entry for entry, _ in entries])
            left -= len(entries)

    def wait_and_handle(self, handle: Callable[[bytes], Any], *, block_ms: int = 1_000) -> None:
        """Wait for messages, handle and acknowledge them."""
        entries = self.pull(block_ms=block_ms)
        for _, fields in entries:
            handle(fields[FIELD])
        if entries:
            self.ack([entry for entry, _ in entries])

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def nanoseconds() -> int:
    """Return a time that all processes of this machine share."""
    return perf_counter_ns()
