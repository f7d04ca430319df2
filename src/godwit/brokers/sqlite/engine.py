"""Every step of the contract on one connection: synchronous, with an injected clock, in the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Concatenate, ParamSpec, TypeVar

from godwit.brokers.arguments import lives_until_ms
from godwit.brokers.contract import Delivery, LetterId, Receipt, Settlement
from godwit.brokers.sqlite import dead_letters, declare, journal, publish, pull, removal, settle, shared
from godwit.brokers.sqlite.layout import ids, recount
from godwit.brokers.sqlite.layout.runs import Runs
from godwit.brokers.sqlite.layout.step import KnownQueues, SqliteStep
from godwit.brokers.sqlite.portions import Maintained, Stage, feed, look_after
from godwit.core.clock import Clock
from godwit.core.errors import GodwitError
from godwit.core.journal.shards import Position
from godwit.core.journal.vocabulary import Event
from godwit.core.messages.envelope import Envelope
from godwit.core.names import AckId, GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec

P = ParamSpec("P")
T = TypeVar("T")


class SqliteEngine:
    """Steps that change something. Each is whole when it returns; when it raises, the caller rolls it back."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock, ready: Callable[[set[str]], None]) -> None:
        self.connection = connection
        self.runs = Runs(connection)
        self._ready: set[str] = set()
        """Queues where something became deliverable since this was last emptied."""
        self._tell_ready = ready
        self._clock = clock
        self._floors: dict[int, int] = {}
        self._known: KnownQueues | None = None
        self._version = -1
        """The file's version when `_known` was right; it changes when another connection has written."""
        self._sweep = ids.Sweep()
        self._trimmer = journal.Trimmer(removed=journal.REMOVED_SHARDS)

    def run(self, step: Callable[[SqliteEngine], T]) -> T:
        """Carry out a step given to the writer."""
        return step(self)

    def committed(self) -> None:
        """Name the queues where something became deliverable."""
        ready, self._ready = self._ready, set()
        self._tell_ready(ready)

    def rolled_back(self) -> None:
        """Forget what was read of steps that did not happen."""
        self.runs.forget()
        self._known = None

    def work(self) -> SqliteStep:
        """Begin a step."""
        return SqliteStep(self.connection, self.runs, self._clock, self._floors)

    def _often(
        self, app_version: str | None, step: Callable[Concatenate[SqliteStep, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Carry out a step of a message's way: it changes queues and groups only through what it has loaded.

        So the next such step can go on with that, unless another process has written meanwhile.
        """
        version = self.connection.execute("PRAGMA data_version").fetchone()[0]
        known = self._known if version == self._version else None
        self._known, self._version = None, version
        work = SqliteStep(self.connection, self.runs, self._clock, self._floors, known)
        work.app_version = app_version
        result = step(work, *args, **kwargs)
        work.save()
        self._known = work.known
        self._ready |= work.ready
        return result

    def _step(self, step: Callable[Concatenate[SqliteStep, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._asked(None, step, *args, **kwargs)

    def _asked(
        self, actor: str | None, step: Callable[Concatenate[SqliteStep, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Carry out a step in the name of who asked for it."""
        self._known = None
        work = self.work()
        work.actor = actor
        result = step(work, *args, **kwargs)
        work.save()
        self._ready |= work.ready
        return result

    def declare(self, spec: QueueSpec, groups: Sequence[GroupSpec]) -> None:
        """Create a queue and groups, or change their settings."""
        self._step(declare.declare, spec, groups)

    def remove(self, name: QueueName, group: GroupName | None = None, *, actor: str | None = None) -> None:
        """Remove a queue or a group with all it holds."""
        self._asked(actor, declare.remove, name, group)

    def note_hold(
        self, event: Event, name: QueueName, group: GroupName | None, hold: bytes | None, actor: str | None
    ) -> None:
        """Write down that a queue or a group is held back or let go."""
        self._asked(actor, removal.note_hold, event, name, group, hold)

    def purge(self, name: QueueName, group: GroupName | None = None, *, actor: str | None = None) -> int:
        """Delete what waits; return how many copies."""
        return self._asked(actor, removal.purge, name, group)

    def publish(
        self, envelopes: Sequence[Envelope], app_version: str | None = None
    ) -> tuple[list[Receipt], GodwitError | None]:
        """Store messages chunk by chunk; return the receipts and what stopped a later chunk."""
        return self._often(app_version, publish.publish, envelopes)

    def pull(
        self,
        name: QueueName,
        group: GroupName,
        *,
        worker: str,
        limit: int,
        lease_ms: int,
        max_bytes: int | None = None,
        app_version: str | None = None,
        briefly: bool = False,
    ) -> list[Delivery] | None:
        """Look after the group, then lease up to `limit` messages; None when it has to be brief and would not be."""
        return self._often(
            app_version,
            pull.pull,
            name,
            group,
            worker=worker,
            limit=limit,
            lease_ms=lease_ms,
            max_bytes=max_bytes,
            briefly=briefly,
        )

    def settle(self, settlements: Sequence[Settlement]) -> list[AckId]:
        """End leases; return the ack ids refused."""
        return self._often(None, settle.settle, settlements)

    def extend(self, ack_ids: Sequence[AckId], lease_ms: int) -> list[AckId]:
        """Let leases end `lease_ms` from now; return the ack ids refused."""
        return self._often(None, settle.extend, ack_ids, lease_ms)

    def cancel(self, name: QueueName, message_id: MessageId, *, actor: str | None = None) -> bool:
        """Delete a message wherever it waits."""
        return self._asked(actor, removal.cancel, name, message_id)

    def replay(self, letter_ids: Sequence[LetterId], *, actor: str | None = None) -> list[LetterId]:
        """Let dead letters wait again; return those that do not exist."""
        return self._asked(actor, dead_letters.replay, letter_ids)

    def discard(self, letter_ids: Sequence[LetterId], *, actor: str | None = None) -> list[LetterId]:
        """Delete dead letters; return those that do not exist."""
        return self._asked(actor, dead_letters.discard, letter_ids)

    def maintain(self, place: Maintained) -> Maintained:
        """Do a portion of what time asks for, from a place on; return how far it came."""
        if place.stage is Stage.GROUPS:
            return self._step(look_after, place)
        if place.stage is Stage.DEAD_LETTERS:
            return self._step(feed, place)
        if place.done == (0, 0):
            now_ms = self._clock.now_ms()
            self._step(self._sweep.step, now_ms)
            shared.forget(self.connection, now_ms)
        dropped = self._step(self._trimmer.step)
        return replace(place, done=(1, 0)) if dropped else replace(place, stage=Stage.DONE)

    def mend(self, name: QueueName, group: GroupName) -> bool:
        """Count anew what a group holds; say whether its counters were wrong."""
        return self._step(recount.mend, name, group)

    def trim(self) -> int:
        """Drop a portion of what the journals need not keep; return the number of rows."""
        return self._step(journal.Trimmer(removed=None).step)

    def commit_reader(self, reader: str, shard: str, position: Position) -> None:
        """Register how far a reader of the journal has got."""
        self._step(journal.commit, reader, shard, position)

    def forget_reader(self, reader: str) -> None:
        """Release a reader's hold."""
        self._step(journal.forget, reader)

    def put(self, key: str, value: bytes, expected: int | None, ttl: timedelta | None) -> int | None:
        """Write a shared value when its version is `expected`."""
        now_ms = self._clock.now_ms()
        until = lives_until_ms(ttl, now_ms)
        return shared.put(self.connection, key, value, expected, until, now_ms)

    def delete(self, key: str) -> None:
        """Remove a shared value."""
        shared.delete(self.connection, key)

    def clear_shared(self, first: str, until: str) -> None:
        """Remove the shared values from the key `first` on, up to `until` without it."""
        shared.clear(self.connection, first, until)
