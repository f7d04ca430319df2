"""The broker contract: one port, three side ports, eleven promises.

`tests/conformance` checks every promise on every broker; a broker that cannot keep one says so in `partial_promises`.

1.  **Durable publish.** A publish that returned is stored, to the backend's stated level, for every group declared by
    then. A group added later starts empty. An envelope with a `group` reaches that group alone. The whole call is
    checked before anything is stored; it is stored in chunks of at most `PUBLISH_CHUNK`, each of them whole or not at
    all, in order. When a later chunk fails, `PartialPublish` names the ids accepted, and publishing again is safe.
2.  **Leases.** While a lease holds no other worker has it. Deadlines follow the broker's clock. A lease ends when
    it is taken back, not when its deadline passes: a late settlement that arrives first counts. `pull` and `maintain`
    take back due leases first; running `maintain` many times at once changes nothing.
3.  **Fencing.** An ack id is an opaque string, valid once. A stale or unknown one changes nothing.
4.  **Delays.** `Nack(delay)` makes the message ready again after the delay. Delays survive restarts.
5.  **Counters.** `attempt` counts deliveries, `failures` what handlers refused, `crashes` leases that ran out in
    silence. `max_crashes` isolates a message as poison; `max_delivery_attempts` gives it up after so many failures and
    crashes together. A delivery that was postponed is in `attempt` alone. Handing back counts as nothing, and neither
    does an outage: when a group was not pulled from or maintained for longer than a lease, that lease ends one length
    after the outage, or later if it would anyway. Outages do not add up.
6.  **Dead letters** stay with their queue and group, keep id, times, key and error history, and move atomically.
    Queues that name the same `dead_letter_queue` are listed together under it; when a queue of that name is declared,
    `maintain` moves the dead letters into it.
7.  **Order.** Higher lanes first, every tenth pull that delivers beginning with the lowest; FIFO inside a lane, in the
    order messages became ready; a returned message goes before those of its lane that were never delivered. With
    `message_ordering` one message per key is in flight, in publish order, and lanes do not matter; what ends the head
    (ack, dead letter, expiry, cancel) releases the next.
8.  **Limits** count per group: a publish over them raises `QueueFull` naming the group, or drops that group's copy when
    the group says so. Flow control caps what is leased; bytes may be exceeded by one message when nothing is leased.
9.  **Expiry.** A message past `expires_at`, or past the queue's ttl counted from creation or `deliver_at`, is never
    delivered; it becomes a dead letter of kind expired.
10. **Deduplication.** Inside the queue's window, counted from acceptance or `deliver_at`, an id is accepted once; the
    receipt of a repetition says `fresh=False`.
11. **Bookkeeping.** `stats` costs the same at any depth, and every transition is in the journal, written in the same
    atomic step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NewType, Protocol, Self

import msgspec

from godwit.core.failures.failure import FailureKind, ProcessingError
from godwit.core.journal.projection import CopyState
from godwit.core.journal.shards import Position
from godwit.core.journal.vocabulary import Event
from godwit.core.messages.envelope import Envelope
from godwit.core.messages.message import Message
from godwit.core.names import AckId, GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec

PUBLISH_CHUNK: Final = 200
MAX_LEASE: Final = timedelta(hours=12)
NO_WAIT: Final = timedelta(0)

LetterId = NewType("LetterId", str)
Place = tuple[QueueName, GroupName]
"""Where a worker pulls from."""


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The broker's word that it has a message; `fresh` is False when it had it before."""

    id: MessageId
    fresh: bool


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A leased attempt at a message."""

    ack_id: AckId
    queue: QueueName
    group: GroupName
    envelope: Envelope
    publish_seq: int
    attempt: int
    failures: int
    crashes: int
    errors: tuple[ProcessingError, ...]
    ready_at_ms: int
    delivered_at_ms: int
    lease_until_ms: int

    @property
    def message_id(self) -> MessageId:
        """The id its publisher knows it by."""
        return self.envelope.id

    @property
    def postponements(self) -> int:
        """How often it was postponed before this delivery."""
        return self.attempt - 1 - self.failures - self.crashes

    def open(self) -> Message:
        """Return the message inside."""
        return self.envelope.open()


class Ack(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The handler is done with the message; `result` is kept in the journal."""

    ack_id: AckId
    run_ms: int | None = None
    result: bytes | None = None


class Nack(msgspec.Struct, frozen=True, tag=True):
    """The handler refused the message; it is ready again after `delay`."""

    ack_id: AckId
    delay: timedelta = NO_WAIT
    error: ProcessingError | None = None
    run_ms: int | None = None


class Postpone(msgspec.Struct, frozen=True, tag=True):
    """The message's time has not come: it is ready again after `delay`. This is a delivery, but no failure."""

    ack_id: AckId
    delay: timedelta = NO_WAIT
    error: ProcessingError | None = None
    run_ms: int | None = None


class GiveUp(msgspec.Struct, frozen=True, tag=True):
    """The message will not be tried again: it becomes a dead letter."""

    ack_id: AckId
    kind: FailureKind
    error: ProcessingError | None = None
    run_ms: int | None = None


class HandBack(msgspec.Struct, frozen=True, tag=True):
    """The worker could not take care of the message; this counts as no attempt."""

    ack_id: AckId


Settlement = Ack | Nack | Postpone | GiveUp | HandBack


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message given up on, with its history."""

    id: LetterId
    queue: QueueName
    group: GroupName
    envelope: Envelope
    publish_seq: int
    kind: FailureKind
    dead_at_ms: int
    attempt: int
    failures: int
    crashes: int
    errors: tuple[ProcessingError, ...]


class GroupStats(msgspec.Struct, frozen=True, kw_only=True):
    """How much a group holds. `blocked` messages wait for the head of their ordering key."""

    name: GroupName
    ready: int
    blocked: int
    delayed: int
    leased: int
    dead: int
    bytes: int
    leased_bytes: int
    dropped: int
    full: bool

    @property
    def depth(self) -> int:
        """Messages that still wait for their end."""
        return self.ready + self.blocked + self.delayed + self.leased


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """How much a queue holds. `published` counts messages accepted since it was created."""

    name: QueueName
    published: int
    duplicates: int
    groups: tuple[GroupStats, ...]


class ShardEnds(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal of one shard holds: rows `first_seq` to `last_seq`, empty when first is above last.

    `dropped` counts rows that a registered reader had not read when the size limit removed them.
    """

    epoch: str
    first_seq: int
    last_seq: int
    bytes: int
    dropped: int

    def rows_after(self, position: Position | None) -> int:
        """Return how many rows a reader at a position has before it; all of them in another epoch."""
        if position is None or position.epoch != self.epoch:
            return max(0, self.last_seq - self.first_seq + 1)
        return max(0, self.last_seq - position.seq)

    def is_set_back(self, position: Position | None) -> bool:
        """Say whether a position seen before lies beyond the end now: the broker has lost its last rows."""
        return position is not None and position.epoch == self.epoch and position.seq > self.last_seq


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Every open and dead copy of a queue as of one position of its journal."""

    position: Position
    copies: tuple[CopyState, ...]


class SharedEntry(msgspec.Struct, frozen=True):
    """A small shared value; `version` changes with every write."""

    value: bytes
    version: int


class DeadLetters(Protocol):
    """Messages given up on: by queue and group, oldest first."""

    async def page(
        self, name: QueueName, *, group: GroupName | None = None, after: LetterId | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """List those of a queue, or of all queues that share the dead letter queue `name`."""
        ...

    async def replay(self, letters: Sequence[LetterId], *, actor: str | None = None) -> list[LetterId]:
        """Make them ready again, counters at zero, history kept; return those that do not exist."""
        ...

    async def discard(self, letters: Sequence[LetterId], *, actor: str | None = None) -> list[LetterId]:
        """Delete them; return those that do not exist."""
        ...


class Journal(Protocol):
    """The ordered record of every transition, one shard per queue and partition."""

    async def shards(self) -> Mapping[str, ShardEnds]:
        """Say what each shard holds; a removed queue's shard stays until it is trimmed away."""
        ...

    async def read(self, shard: str, after: Position | None = None, *, limit: int = 1_000) -> list[bytes]:
        """Return chunks with rows beyond `after`, at most `limit` rows but at least one chunk.

        The first chunk may begin at or before `after`. Raises `JournalLost` when rows beyond `after` are gone or the
        epoch is another.
        """
        ...

    async def trim(self) -> int:
        """Drop what need not be kept; return the number of rows dropped.

        That is what is older than the queue's `journal_keep` and read by all readers, and whatever exceeds its size.
        """
        ...

    async def commit(self, reader: str, shard: str, position: Position) -> None:
        """Register how far `reader` has got; trimming by age waits for it."""
        ...

    async def committed(self, reader: str) -> Mapping[str, Position]:
        """Return how far `reader` has got, by shard."""
        ...

    async def forget(self, reader: str) -> None:
        """Release a reader's hold."""
        ...

    async def snapshot(self, queue: QueueName) -> Snapshot:
        """List a queue's copies together with the position that lists them all.

        Of a queue with several partitions this is the first; a further one is meant by the name of its shard.
        """
        ...


class Shared(Protocol):
    """Small values that all processes see: breaker states, pauses, heartbeats."""

    async def get(self, key: str) -> SharedEntry | None:
        """Return the value, or None when it is missing or past its ttl."""
        ...

    async def put(self, key: str, value: bytes, *, expected: int | None, ttl: timedelta | None = None) -> int | None:
        """Write when the present version is `expected` (None: when missing); return the new version, or None."""
        ...

    async def delete(self, key: str) -> None:
        """Remove the value."""
        ...

    async def scan(self, prefix: str, *, after: str = "", limit: int | None = None) -> Mapping[str, SharedEntry]:
        """Return the values whose key begins with `prefix`, by their keys: those beyond `after`, at most `limit`."""
        ...

    async def clear(self, first: str, until: str) -> None:
        """Remove the values from the key `first` on, up to `until` without it."""
        ...


class Listener(Protocol):
    """Waits for several places at once without losing a wake-up: clear, pull, and wait when there was nothing."""

    def clear(self) -> None:
        """Forget earlier wake-ups; call it before pulling."""
        ...

    def expect(self, *, worker: str, limit: int, lease: timedelta, max_bytes: int | None = None) -> None:
        """Say what will be pulled when it is woken, until the next `clear`: a broker may fetch it ahead."""
        ...

    def wake(self) -> None:
        """End the waiting from outside."""
        ...

    async def wait(self, timeout: timedelta) -> bool:  # noqa: ASYNC109
        """Return True when something may have become ready since `clear`, False once `timeout` has passed."""
        ...

    def close(self) -> None:
        """Listen no more."""
        ...


class Transport(Protocol):
    """What producers and workers call: messages in, deliveries out, and their end."""

    publishes_at_once: int
    """How many publishes of one producer are best under way: 2 where a server stores one while the next is prepared."""
    app_version: str | None
    """The version of the application, as the journal keeps it of what it publishes and pulls; set before it opens."""

    async def publish(self, envelopes: Sequence[Envelope], *, min_replicas: int | None = None) -> list[Receipt]:
        """Store messages for every group; return a receipt for each, in order.

        `min_replicas` counts instead of that of their queues; a broker without replicas refuses it.
        """
        ...

    async def pull(
        self,
        queue: QueueName,
        group: GroupName,
        *,
        worker: str,
        limit: int,
        lease: timedelta,
        wait: timedelta = NO_WAIT,
        max_bytes: int | None = None,
    ) -> list[Delivery]:
        """Lease up to `limit` messages; empty after `wait` when there are none.

        With `max_bytes` the deliveries together stay below it, except that the first always fits.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[AckId]:
        """End leases; return the ack ids that were not, or no longer, valid: those changed nothing."""
        ...

    async def extend(self, ack_ids: Sequence[AckId], lease: timedelta) -> list[AckId]:
        """Let leases end `lease` from now; return the ack ids that were not valid."""
        ...

    def extend_now(self, ack_ids: Sequence[AckId], lease: timedelta) -> list[AckId]:
        """Extend from any thread, also while the event loop is busy; otherwise like `extend`."""
        ...

    def listen(self, places: Sequence[Place]) -> Listener:
        """Return a listener for these places."""
        ...


class Administration(Protocol):
    """What people, and the tools they use, call: queues, and what is in them."""

    async def declare(self, queue: QueueSpec, groups: Sequence[GroupSpec] = ()) -> None:
        """Create a queue and groups, or change their settings; without groups it gets the group `default`."""
        ...

    async def remove(self, queue: QueueName, group: GroupName | None = None, *, actor: str | None = None) -> None:
        """Remove a queue, or one group, with all it holds."""
        ...

    async def purge(self, queue: QueueName, group: GroupName | None = None, *, actor: str | None = None) -> int:
        """Delete everything that waits (not what is leased or dead); return how many copies."""
        ...

    async def cancel(self, queue: QueueName, message_id: MessageId, *, actor: str | None = None) -> bool:
        """Delete a message wherever it waits; copies that are leased or dead stay. Say whether there was one."""
        ...

    async def note_hold(
        self, event: Event, queue: QueueName, group: GroupName | None = None, *, hold: bytes | None, actor: str | None
    ) -> None:
        """Write down that a queue or a group was paused, is draining or was resumed; `hold` says why, as JSON."""
        ...

    async def stats(self) -> list[QueueStats]:
        """Say how much every queue holds."""
        ...

    @property
    def dead_letters(self) -> DeadLetters:
        """The dead letters of all queues."""
        ...


class Upkeep(Protocol):
    """What the processes of a broker do for it, and read of it, beside its messages."""

    care_is_shared: bool
    """Whether `maintain` of one process does it for all; else each process has leases that only it can look after."""

    async def maintain(self) -> int:
        """Take back due leases, release due delays, expire, feed dead letter queues; return the number of changes."""
        ...

    @property
    def journal(self) -> Journal:
        """The journal of all queues."""
        ...

    @property
    def shared(self) -> Shared:
        """The values shared by all processes."""
        ...


class Broker(Transport, Administration, Upkeep, Protocol):
    """Carries messages from producers to workers, at least once.

    Calls of the administration take an `actor`: who asked for it, as the journal keeps it.
    """

    partial_promises: frozenset[str]
    """Numbers of the promises kept only in part; empty for memory, sqlite and redis."""

    async def close(self) -> None:
        """Release what the broker holds in this process; messages stay where they are."""
        ...

    async def __aenter__(self) -> Self:
        """Open the broker."""
        ...

    async def __aexit__(self, *exc: object) -> None:
        """Close the broker."""
        ...
