"""The store port: one small port per job, the same promises on every backend.

`tests/store` checks them:

* a call that returned is durable; one that raised changed nothing;
* nothing here is on the way of a message from producer to worker: the broker is the truth about live messages;
* a store that cannot be reached raises `StoreUnavailable` and works again, without being opened anew, once it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol, Self

import msgspec

from godwit.core.journal.changes import Address, Batch, Census
from godwit.core.journal.external_journal import JournalWriter
from godwit.core.journal.shards import Position
from godwit.core.journal.statuses import MessageStatus
from godwit.store.effects import Ledger, Outbox
from godwit.store.pipelines import Pipelines
from godwit.store.plans import Plans
from godwit.store.schedules import Schedules


class Migration(msgspec.Struct, frozen=True, order=True):
    """A numbered change of the schema; applied as a whole or not at all."""

    number: int
    name: str

    def __str__(self) -> str:
        """Return it as its file is called."""
        return f"{self.number:04d}-{self.name}"


class SchemaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the schema has, what it lacks, and what it has that this version does not know."""

    applied: tuple[Migration, ...]
    pending: tuple[Migration, ...]
    unknown: tuple[Migration, ...]

    @property
    def current(self) -> bool:
        """Whether this version can work with it."""
        return not self.pending and not self.unknown


class Migrations(Protocol):
    """The schema and its versions."""

    async def status(self) -> SchemaStatus:
        """Say which migrations the schema has; also of one that cannot be worked with."""
        ...

    async def upgrade(self) -> tuple[Migration, ...]:
        """Apply what is pending, each in a transaction of its own, one upgrader at a time; return what was applied.

        Raises `SchemaTooNew` when the schema has migrations this version does not know.
        """
        ...


class Messages(Protocol):
    """What the journal tells, as tables: messages, copies, dead letters, queues, groups and their members.

    Never the truth about a live message, and never behind by more than the recorder's lag.
    """

    batch_rows: int
    """How many transitions are best recorded at once: a broker in the same file waits for so long."""

    async def positions(self) -> Mapping[str, Position]:
        """Return how far the journal is recorded, by shard."""
        ...

    async def last_row_times(self) -> Mapping[str, int]:
        """Return when the last recorded row of each shard was written, in milliseconds since 1970."""
        ...

    async def record(self, batch: Batch) -> bool:
        """Carry out a batch and move the positions with it, in one transaction.

        False, and nothing is changed, when a position is not where the batch begins: another recorder was here.
        """
        ...

    async def open_copies(self, queue: str) -> list[tuple[Address, str]]:
        """Return the addresses and message ids of the copies of a queue that have not ended, as far as recorded."""
        ...

    async def status(self, message_id: str, ahead: Sequence[Batch] = ()) -> MessageStatus | None:
        """Say where a message stands; of several with one id the open one, else the one that ended last.

        `ahead` is what the journal tells of it beyond what is recorded.
        """
        ...

    async def note(self, census: Census) -> None:
        """Write down what the journal does not tell; queues and groups that are not recorded yet are left out."""
        ...

    async def retain(self, keep: timedelta) -> int:
        """Drop history older than `keep`, by whole days; return how many parts (or rows) were dropped."""
        ...


class Store(Protocol):
    """Keeps what outlives a message: use it with `async with`. Nothing is connected before the first call."""

    @property
    def url(self) -> str:
        """Its address, without a password."""
        ...

    @property
    def migrations(self) -> Migrations:
        """The schema."""
        ...

    @property
    def messages(self) -> Messages:
        """The projection of the journal."""
        ...

    @property
    def ledger(self) -> Ledger:
        """Which effects have happened."""
        ...

    @property
    def outbox(self) -> Outbox:
        """Messages that leave with a transaction."""
        ...

    @property
    def journal(self) -> JournalWriter:
        """The journal it keeps for brokers that cannot."""
        ...

    @property
    def pipelines(self) -> Pipelines:
        """The state of pipelines."""
        ...

    @property
    def schedules(self) -> Schedules:
        """What is due later."""
        ...

    @property
    def plans(self) -> Plans:
        """Campaigns as they are planned."""
        ...

    async def ping(self) -> None:
        """Return when the store can be reached and its schema is ours; raise what is wrong otherwise."""
        ...

    async def close(self) -> None:
        """Release what the store holds in this process."""
        ...

    async def __aenter__(self) -> Self:
        """Open the store."""
        ...

    async def __aexit__(self, *exc: object) -> None:
        """Close the store."""
        ...
