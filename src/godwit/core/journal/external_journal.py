"""What a broker may have kept for it: the port a store offers to brokers that cannot keep a journal.

Brokers and stores do not know each other; the manager hands one to the other as this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from godwit.core.journal.shards import Position
from godwit.core.journal.vocabulary import Event, Row
from godwit.core.names import GroupName, QueueName


class JournalStep(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one step, event and group, in the event's layout; the keeper adds epoch and seq."""

    at_ms: int
    event: Event
    queue: QueueName
    group: GroupName | None = None
    worker: str | None = None
    depth: int | None = None
    actor: str | None = None
    app_version: str | None = None
    rows: Sequence[Row]


class KeptShard(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal of one shard holds: rows `first_seq` to `last_seq`, empty when first is above last."""

    epoch: str
    first_seq: int
    last_seq: int
    bytes: int
    dropped: int


class JournalWriter(Protocol):
    """Keeps the journal of a broker that cannot: written after the fact, at least once, read like any other."""

    async def append(self, shard: str, steps: Sequence[JournalStep]) -> None:
        """Add steps in order; they are durable when this returns. Writers do not wait for each other."""
        ...

    async def shards(self) -> Mapping[str, KeptShard]:
        """Say what each shard holds."""
        ...

    async def read(self, shard: str, after: Position | None = None, *, limit: int = 1_000) -> list[bytes]:
        """Return chunks with rows beyond `after`, at most `limit` rows but at least one chunk.

        The first chunk may begin at or before `after`. Raises `JournalLost` when rows beyond `after` are gone or the
        epoch is another.
        """
        ...

    async def trim(self, shard: str, *, before_ms: int, max_bytes: int) -> int:
        """Drop rows older than `before_ms` that all readers have read, and whatever exceeds `max_bytes`."""
        ...

    async def commit(self, reader: str, shard: str, position: Position) -> None:
        """Register how far `reader` has got."""
        ...

    async def committed(self, reader: str) -> Mapping[str, Position]:
        """Return how far `reader` has got, by shard."""
        ...

    async def forget(self, reader: str) -> None:
        """Release a reader's hold."""
        ...


@runtime_checkable
class KeepsJournalElsewhere(Protocol):
    """A broker whose journal is only for a while with it: a manager with a store hands it that store's."""

    def keep_journal(self, writer: JournalWriter) -> None:
        """Hand the journal on to a writer from now on."""
        ...
