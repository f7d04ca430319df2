"""The store port: one small port per job, the same promises on every backend.

`tests/store` checks them:

* a call that returned is durable; one that raised changed nothing;
* nothing here is on the way of a message from producer to worker: the broker is the truth about live messages;
* a store that cannot be reached raises `StoreUnavailable` and works again, without being opened anew, once it can.
"""

from __future__ import annotations

from typing import Protocol, Self

import msgspec

from godwit.core.keeping import JournalWriter, LetterKeeper
from godwit.store.pipelines import Pipelines
from godwit.store.schedules import Schedules


class Migration(msgspec.Struct, frozen=True, order=True):
    """One numbered change of the schema; applied as a whole or not at all."""

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
    def journal(self) -> JournalWriter:
        """The journal it keeps for brokers that cannot."""
        ...

    @property
    def letters(self) -> LetterKeeper:
        """The dead letters it keeps for brokers that cannot."""
        ...

    @property
    def pipelines(self) -> Pipelines:
        """The state of pipelines."""
        ...

    @property
    def schedules(self) -> Schedules:
        """What is due later."""
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
