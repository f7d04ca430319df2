"""What a piece of the journal changes in the state tables: one change per copy, however many transitions it made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import msgspec

from godwit.core.journal.shards import Position, numbers_of
from godwit.core.journal.statuses import Status, least_finished
from godwit.core.journal.vocabulary import Event

Address = tuple[str, str, int]
"""Queue, group and publish_seq: one copy of a message."""


class CopyChange(msgspec.Struct, gc=False):
    """The new facts about one copy. `born`: it arrived in this batch; else None means that a fact stays as it was."""

    queue: str
    group: str
    publish_seq: int
    message_id: str
    born: bool = False
    status: Status | None = None
    retry_count: int | None = None
    attempt: int | None = None
    failures: int | None = None
    crashes: int | None = None
    worker: str | None = None
    delivery_id: str | None = None
    ready_at: int | None = None
    delivered_at: int | None = None
    lease_until: int | None = None
    run_ms: int | None = None
    error_kind: str | None = None
    error_fingerprint: str | None = None
    result: bytes | None = None
    updated_at: int = 0
    finished_at: int | None = None
    superseded: bool = False
    """The copy ended because its message was replayed: how it ended says nothing about the message."""

    @classmethod
    def arrived(cls, queue: str, group: str, publish_seq: int, message_id: str, status: Status) -> Self:
        """Return a copy that begins here."""
        return cls(queue, group, publish_seq, message_id, True, status, 0, 0, 0, 0)  # noqa: FBT003 (as fast as it gets)

    @property
    def address(self) -> Address:
        """Where it stands."""
        return (self.queue, self.group, self.publish_seq)

    @property
    def processed_at(self) -> int | None:
        """When its handler was done with it."""
        return self.finished_at if self.status is Status.COMPLETED else None


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """A message that arrived; `body` is None when the journal keeps none."""

    queue: str
    message_id: str
    type: str
    priority: int
    scheduled_at: int | None
    expires_at: int | None
    body: bytes | None
    at: int
    copies: int = 1


class MessageChange(msgspec.Struct, gc=False):
    """What the copies of a message, as far as the batch knows them, say about it."""

    message_id: str
    arrival: Arrival | None
    existing: bool = False
    """Copies that arrived earlier changed too: the tables know more than the batch."""
    status: Status | None = None
    """The least finished of the open copies that arrived in the batch."""
    ended_as: Status | None = None
    retry_count: int = 0
    updated_at: int = 0
    born: int = 0

    def add(self, copy: CopyChange) -> None:
        """Count one of its copies in."""
        self.updated_at = max(self.updated_at, copy.updated_at)
        if not copy.born:
            self.existing = True
            return
        self.born += 1
        status = copy.status or Status.PENDING
        if copy.finished_at is None:
            self.status = status if self.status is None else least_finished((self.status, status))
        elif not copy.superseded:
            self.ended_as = status if self.ended_as is None else least_finished((self.ended_as, status))
        self.retry_count = max(self.retry_count, copy.retry_count or 0)

    @property
    def settled_by_tables(self) -> bool:
        """Whether the tables may know copies of it that the batch does not."""
        return self.existing or self.arrival is None or self.born < self.arrival.copies

    @property
    def finished(self) -> bool:
        """Whether all of it arrived and ended in the batch, so that the open tables need not know it."""
        return self.status is None and not self.settled_by_tables


class LetterFacts(msgspec.Struct, frozen=True):
    """What can be searched of a dead letter."""

    message_id: str
    type: str | None
    kind: str
    fingerprint: str | None
    attempt: int
    failures: int
    crashes: int
    worker: str | None
    dead_at: int


class InstanceWork(msgspec.Struct):
    """What one member of a group did."""

    processed: int = 0
    errors: int = 0
    run_ms: int = 0
    last_at: int = 0


class Removal(msgspec.Struct, frozen=True):
    """All copies of a queue, or of one group, in one shard are gone: dead ones too, or only those that waited."""

    event: Event
    queue: str
    group: str | None
    at: int
    shard: str = ""

    @property
    def numbers(self) -> range:
        """The `publish_seq` that those copies can have."""
        return numbers_of(self.shard)

    @property
    def of_first(self) -> bool:
        """Whether it is that of the first partition, which speaks for the whole queue."""
        return self.numbers.start == 0

    @property
    def dead_too(self) -> bool:
        """Whether leased and dead copies are gone as well."""
        return self.event is not Event.PURGED


class Step(msgspec.Struct, frozen=True):
    """From where to where a batch leads in one shard; `at` is the time of the last row, `lost` counts unusable rows."""

    shard: str
    before: Position | None
    after: Position
    at: int
    lost: int = 0


class Batch:
    """The changes of a piece of the journal, in the order they are to be made: the removal last."""

    def __init__(self) -> None:
        self.steps: dict[str, Step] = {}
        self.rows = 0
        self.unusable: list[str] = []
        """Why rows were left out: they cannot be recorded."""
        self.copies: dict[Address, CopyChange] = {}
        self.arrivals: dict[str, Arrival] = {}
        self.letters: dict[Address, LetterFacts | None] = {}
        self.queues: dict[str, tuple[bytes, int]] = {}
        self.groups: dict[tuple[str, str], tuple[bytes, int]] = {}
        self.instances: dict[tuple[str, str, str], InstanceWork] = {}
        self.removal: Removal | None = None

    def messages(self) -> Iterable[MessageChange]:
        """Sum up the copies by message."""
        found: dict[str, MessageChange] = {}
        for copy in self.copies.values():
            change = found.get(copy.message_id)
            if change is None:
                change = found[copy.message_id] = MessageChange(copy.message_id, self.arrivals.get(copy.message_id))
            change.add(copy)
        return found.values()


class MemberState(msgspec.Struct, frozen=True):
    """How one member of a group is, by its heartbeats."""

    queue: str
    group: str
    name: str
    status: str
    last_heartbeat: int


class Census(msgspec.Struct, frozen=True):
    """What the journal does not tell: which queues and groups are held back, how the members of groups are."""

    queues: dict[str, str]
    groups: dict[tuple[str, str], str]
    members: list[MemberState]
