"""The reference engine: every promise of the contract on plain structures, synchronous, with an injected clock."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from godwit.brokers.chunks import addresses, publish_chunks
from godwit.brokers.contract import (
    DeadLetter,
    Delivery,
    GroupStats,
    LetterId,
    QueueStats,
    Receipt,
    Settlement,
    SharedEntry,
    Snapshot,
)
from godwit.brokers.memory import dead_letters
from godwit.brokers.memory.group import BLOCKED, GONE, LEASED, NEVER, MemoryCopy, MemoryGroup
from godwit.brokers.memory.journal import MemoryShard
from godwit.brokers.memory.leases import Transition, extend, lease, token_maker
from godwit.brokers.memory.maintain import PORTION, is_due, maintain_group
from godwit.brokers.memory.pull import deliverable, take, take_within
from godwit.brokers.memory.queue import MemoryQueue
from godwit.brokers.memory.settle import settle
from godwit.brokers.memory.stats import all_copies, copy_state, group_stats
from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.errors import AlreadyExistsError, GodwitError, GroupNotFound, PartialPublish, QueueNotFound
from godwit.core.journal.rows import cancelled_row, declared_row, held_row, refused_row, removal_row
from godwit.core.journal.shards import Position, shard_name
from godwit.core.journal.vocabulary import Event, Row
from godwit.core.messages.envelope import Envelope
from godwit.core.names import AckId, GroupName, MessageId, QueueName
from godwit.core.queues import (
    GROUP_FIXED,
    QUEUE_FIXED,
    GroupSpec,
    JournalBody,
    QueueSpec,
    changed_setting,
)

REMOVED_SHARDS: Final = 20
"""Journals of removed queues that are looked at each time: however many were removed, maintenance costs the same."""


class MemoryEngine:
    """Queues, groups and their journal in this process; nothing survives it."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._queues: dict[QueueName, MemoryQueue] = {}
        self._held: dict[AckId, MemoryCopy] = {}
        self._tokens = token_maker()
        self._shared_version = 0
        self.shards: dict[str, MemoryShard] = {}
        self._removed: OrderedDict[QueueName, MemoryShard] = OrderedDict()
        """Journals of removed queues that still hold something."""
        self.shared: dict[str, tuple[SharedEntry, int | None]] = {}

    def next_shared_version(self) -> int:
        """Return a version that no shared value ever had, deleted ones included."""
        self._shared_version += 1
        return self._shared_version

    # Declaring

    def declare(self, spec: QueueSpec, groups: Iterable[GroupSpec]) -> None:
        """Create a queue and groups, or change their settings."""
        wanted = list(groups)
        queue = self._queues.get(spec.name)
        if queue is not None and (differs := changed_setting(queue.spec, spec, QUEUE_FIXED)):
            raise AlreadyExistsError("MemoryQueue", spec.name, differs)
        for group in wanted:
            known = queue.groups.get(group.name) if queue is not None else None
            if known is not None and (differs := changed_setting(known.spec, group, GROUP_FIXED)):
                raise AlreadyExistsError("MemoryGroup", group.name, differs)
        if queue is None:
            shard = self.shards.setdefault(shard_name(spec.name), MemoryShard(shard_name(spec.name)))
            queue = self._queues[spec.name] = MemoryQueue(spec, shard, keeps_body=spec.journal_body is JournalBody.ON)
            self._tick(queue)
            shard.append(Event.QUEUE_CREATED, spec.name, None, None, None, [declared_row(msgspec.json.encode(spec))])
        queue.spec = spec
        queue.keeps_body = spec.journal_body is JournalBody.ON
        now_ms = self._tick(queue)
        for group in wanted:
            if group.name in queue.groups:
                queue.groups[group.name].spec = group
            else:
                created = queue.groups[group.name] = MemoryGroup(group, spec.name, spec.lanes, now_ms)
                created.letter_seq = queue.shard.letter_seqs.pop(group.name, 0)
                row = declared_row(msgspec.json.encode(group))
                queue.shard.append(Event.GROUP_CREATED, spec.name, group.name, None, 0, [row])

    @property
    def queues(self) -> list[MemoryQueue]:
        """Every queue, in the order of their declaration."""
        return list(self._queues.values())

    def attend(self, name: QueueName, group: GroupName, until_ms: int) -> None:
        """Note that a pull watched a group until an instant, ready to maintain it."""
        queue = self._queues.get(name)
        found = queue.groups.get(group) if queue is not None else None
        if queue is not None and found is not None:
            lag, until_ms = queue.shard.lag, min(until_ms, self._clock.now_ms())
            found.looked_after_ms = max(found.looked_after_ms, until_ms if lag is None else lag.time_ms(until_ms))

    def take_in(self, name: QueueName, envelopes: Sequence[Envelope], now_ms: int) -> None:
        """Store messages that were accepted before: an earlier process held them."""
        self._queue(name).accept(envelopes, now_ms, moved=True)

    def declared(self, name: QueueName) -> bool:
        """Say whether a queue exists."""
        return name in self._queues

    def remove(self, name: QueueName, group: GroupName | None = None, *, actor: str | None = None) -> None:
        """Remove a queue or a group with all it holds."""
        queue = self._queue(name)
        gone = list(queue.groups.values()) if group is None else [self._group(queue, group)]
        copies = [copy for one in gone for copy in all_copies(one)]
        for copy in copies:
            if copy.place == LEASED:
                del self._held[copy.ack_id]
        self._tick(queue)
        queue.shard.letter_seqs.update((one.name, one.letter_seq) for one in gone)
        row = removal_row(copy.seq for copy in copies)
        if group is None:
            del self._queues[name]
            self._removed[name] = queue.shard
            queue.shard.append(Event.QUEUE_REMOVED, name, None, None, 0, [row], actor=actor)
        else:
            del queue.groups[group]
            queue.shard.append(Event.GROUP_REMOVED, name, group, None, 0, [row], actor=actor)

    def purge(self, name: QueueName, group: GroupName | None = None, *, actor: str | None = None) -> int:
        """Delete what waits; return how many copies."""
        queue = self._queue(name)
        now_ms = self._tick(queue)
        purged = 0
        for one in list(queue.groups.values()) if group is None else [self._group(queue, group)]:
            waiting = [copy for copy in all_copies(one) if copy.place <= BLOCKED]
            # Blocked ones first, so that ending a head does not release what is purged with it.
            for copy in sorted(waiting, key=lambda copy: copy.place != BLOCKED):
                one.withdraw(copy)
                one.end(copy, GONE, now_ms)
            if waiting:
                row = removal_row(copy.seq for copy in waiting)
                queue.shard.append(Event.PURGED, name, one.name, None, one.depth, [row], actor=actor)
            purged += len(waiting)
        return purged

    def note_hold(
        self, event: Event, name: QueueName, group: GroupName | None, hold: bytes | None, actor: str | None
    ) -> None:
        """Write down that a queue or a group is held back or let go."""
        queue = self._queue(name)
        depth = None if group is None else self._group(queue, group).depth
        self._tick(queue)
        queue.shard.append(event, name, group, None, depth, [held_row(hold)], actor=actor)

    # The way of a message

    def publish(self, envelopes: Sequence[Envelope], app_version: str | None = None) -> list[Receipt]:
        """Check everything, then store chunk by chunk."""
        for name, group in addresses(envelopes):
            queue = self._queue(name)
            if group is not None:
                self._group(queue, group)
        receipts: list[Receipt] = []
        for chunk in publish_chunks(envelopes):
            queue = self._queues[chunk[0].queue]
            try:
                receipts += queue.accept(chunk, self._tick(queue), app_version=app_version)
            except GodwitError as error:
                if not receipts:
                    raise
                raise PartialPublish(tuple(receipt.id for receipt in receipts), str(error)) from error
        return receipts

    def pull(
        self,
        name: QueueName,
        group_name: GroupName,
        *,
        worker: str,
        limit: int,
        lease_ms: int,
        max_bytes: int | None = None,
        app_version: str | None = None,
    ) -> list[Delivery]:
        """Look after the group, then lease up to `limit` messages."""
        queue = self._queue(name)
        group = self._group(queue, group_name)
        now_ms = self._tick(queue)
        maintain_group(group, queue.shard, self._held, now_ms)
        if group.next_expiry_ms <= now_ms:
            return []  # more has expired than one call may bury: nothing goes before it
        flow = group.spec.flow_control
        if flow.max_messages is not None:
            limit = min(limit, flow.max_messages - group.leased)
        if limit <= 0 or not group.ready:
            return []
        bounded = max_bytes is not None or flow.max_bytes is not None
        copies = list(take_within(group, limit, max_bytes)) if bounded else take(group, limit)
        if not copies:
            return []
        deliveries, rows = lease(copies, self._held, self._tokens, worker=worker, lease_ms=lease_ms, now_ms=now_ms)
        queue.shard.append(Event.DELIVERED, name, group_name, worker, group.depth, rows, app_version=app_version)
        return deliveries

    def settle(self, settlements: Sequence[Settlement]) -> list[AckId]:
        """End leases; return the ack ids refused."""
        rows, refused = settle(settlements, self._held, self._now)
        self._write(rows)
        self._journal_refused(refused)
        return refused

    def extend(self, ack_ids: Sequence[AckId], lease_ms: int) -> list[AckId]:
        """Let leases end `lease_ms` from now; return the ack ids refused."""
        rows, refused = extend(ack_ids, self._held, self._now, lease_ms)
        self._write(rows)
        self._journal_refused(refused)
        return refused

    def cancel(self, name: QueueName, message_id: MessageId, *, actor: str | None = None) -> bool:
        """Delete a message wherever it waits."""
        queue = self._queue(name)
        now_ms = self._tick(queue)
        found = False
        for group in queue.groups.values():
            rows = []
            copy = group.by_id.get(message_id)
            while copy is not None:
                older = copy.twin
                if copy.place <= BLOCKED:
                    group.withdraw(copy)
                    group.end(copy, GONE, now_ms)
                    rows.append(cancelled_row(message_id, copy.seq))
                copy = older
            if rows:
                found = True
                queue.shard.append(Event.CANCELLED, name, group.name, None, group.depth, rows, actor=actor)
        return found

    # Time and bookkeeping

    def maintain(self) -> Iterator[int]:
        """Look after every group, feed dead letter queues, forget and trim: in portions; give the changes of each.

        What becomes due in between is for the next time. Queues may come and go between two portions.
        """
        changes = 0
        for portion in self._portions(self._clock.now_ms()):
            changes += portion
            if changes >= PORTION:
                yield changes
                changes = 0
        for queue in self.queues:
            queue.forget(queue.shard.at_ms)
        for _ in self.trim(removed=REMOVED_SHARDS):
            yield changes
            changes = 0
        yield changes

    def _portions(self, until_ms: int) -> Iterator[int]:
        for queue in self.queues:
            for group in list(queue.groups.values()):
                is_due_still = True
                while is_due_still and self._queues.get(queue.spec.name) is queue and group.is_in(queue.groups):
                    yield maintain_group(group, queue.shard, self._held, self._tick(queue))
                    is_due_still = is_due(group, min(until_ms, queue.shard.at_ms))
        for queue in self.queues:
            target = self._queues.get(queue.spec.dead_letter_queue) if queue.spec.dead_letter_queue else None
            if target is None or not target.groups or self._queues.get(queue.spec.name) is not queue:
                continue
            self._tick(queue)
            for moved in dead_letters.feed(queue, target, self._tick(target)):
                yield moved
                if queue not in self.queues or target not in self.queues:
                    break

    def maintain_group(self, name: QueueName, group_name: GroupName) -> list[AckId]:
        """Do all that time asks for in one group; return the ack ids whose leases were taken back."""
        queue = self._queue(name)
        group, now_ms = self._group(queue, group_name), self._tick(queue)
        lapsed: list[AckId] = []
        maintain_group(group, queue.shard, self._held, now_ms, lapsed)
        while is_due(group, now_ms):
            maintain_group(group, queue.shard, self._held, now_ms, lapsed)
        return lapsed

    def next_due_ms(self, name: QueueName, group_name: GroupName) -> int | None:
        """Return when, by the clock, something may become ready by itself, or None."""
        queue = self._queue(name)
        group, lag = self._group(queue, group_name), queue.shard.lag
        times = [group.due_hint_ms if group.leased else NEVER]
        times += [heap[0][0] for heap in (group.delayed, group.expiring) if heap]
        earliest = min(times)
        if earliest == NEVER:
            return None
        return earliest if lag is None else lag.reached_ms(earliest)

    def ready(self, name: QueueName, group_name: GroupName) -> int:
        """Return how many messages of a group could be pulled now, 0 when it does not exist."""
        queue = self._queues.get(name)
        group = queue.groups.get(group_name) if queue is not None else None
        return deliverable(group) if group is not None else 0

    def stats(self) -> list[QueueStats]:
        """Say how much every queue holds."""
        return [
            QueueStats(
                name=queue.spec.name,
                published=queue.published,
                duplicates=queue.duplicates,
                groups=tuple(group_stats(queue.spec, group) for group in queue.groups.values()),
            )
            for queue in self._queues.values()
        ]

    def group_stats(self, name: QueueName, group_name: GroupName) -> GroupStats:
        """Say how much one group holds."""
        queue = self._queue(name)
        return group_stats(queue.spec, self._group(queue, group_name))

    def trim(self, *, removed: int | None = None) -> Iterator[int]:
        """Drop what the journals need not keep, in portions; give the rows of each.

        A removed queue's journal is kept by the default rules; with `removed`, so many of them are looked at in turn.
        """
        now_ms = self._clock.now_ms()
        shards = [(queue.shard, queue.spec) for queue in self._queues.values()]
        for _ in range(len(self._removed) if removed is None else min(removed, len(self._removed))):
            name, shard = self._removed.popitem(last=False)
            if shard.chunks and name not in self._queues:
                self._removed[name] = shard
                shards.append((shard, QueueSpec(name=name)))
        for shard, spec in shards:
            while dropped := shard.trim(spec, max(now_ms, shard.at_ms)):
                yield dropped

    def snapshot(self, name: QueueName) -> Snapshot:
        """List a queue's copies as of the newest row of its journal."""
        queue = self._queue(name)
        copies = tuple(copy_state(copy) for group in queue.groups.values() for copy in all_copies(group))
        return Snapshot(position=Position(queue.shard.epoch, queue.shard.seq), copies=copies)

    # Dead letters

    def letters(self, name: QueueName, group: GroupName | None, after: LetterId | None, limit: int) -> list[DeadLetter]:
        """List dead letters of a queue, or of all that share a dead letter queue."""
        found = dead_letters.sources(self._queues.values(), name)
        if not found:
            raise QueueNotFound(name, tuple(self._queues))
        return dead_letters.page(found, group, after, limit)

    def replay(self, letter_ids: Sequence[LetterId], *, actor: str | None = None) -> list[LetterId]:
        """Let dead letters wait again; return those that do not exist."""
        by_group, unknown = self._find_letters(letter_ids)
        for group, letters in by_group.items():
            dead_letters.check_room(self._queues[group.queue], group, letters)
        for group, letters in by_group.items():
            queue = self._queues[group.queue]
            dead_letters.replay(queue, group, letters, self._tick(queue), actor)
        return unknown

    def discard(self, letter_ids: Sequence[LetterId], *, actor: str | None = None) -> list[LetterId]:
        """Delete dead letters; return those that do not exist."""
        by_group, unknown = self._find_letters(letter_ids)
        for group, letters in by_group.items():
            self._tick(self._queues[group.queue])
            dead_letters.discard(self._queues[group.queue], group, letters, actor=actor)
        return unknown

    def _find_letters(
        self, letter_ids: Sequence[LetterId]
    ) -> tuple[dict[MemoryGroup, list[MemoryCopy]], list[LetterId]]:
        found: dict[MemoryGroup, dict[int, MemoryCopy]] = {}
        unknown = []
        for letter_id in letter_ids:
            group, number = self._addressed(letter_id)
            letter = group.letters.get(int(number)) if group is not None and number.isdecimal() else None
            if letter is None or group is None or letter.letter in found.get(group, ()):
                unknown.append(letter_id)
            else:
                found.setdefault(group, {})[letter.letter] = letter
        return {group: list(letters.values()) for group, letters in found.items()}, unknown

    # Finding things

    def _queue(self, name: QueueName) -> MemoryQueue:
        queue = self._queues.get(name)
        if queue is None:
            raise QueueNotFound(name, tuple(self._queues))
        return queue

    def _group(self, queue: MemoryQueue, name: GroupName) -> MemoryGroup:
        group = queue.groups.get(name)
        if group is None:
            raise GroupNotFound(queue.spec.name, name, tuple(queue.groups))
        return group

    def _addressed(self, opaque_id: str) -> tuple[MemoryGroup | None, str]:
        """Return the group an ack id or letter id belongs to, and the rest of it."""
        if not opaque_id.isascii():
            return None, ""  # all of ours are
        name, _, rest = opaque_id.partition("#")
        _, _, rest = rest.partition("#")
        group_name, _, rest = rest.partition("#")
        queue = self._queues.get(QueueName(name))
        return (queue.groups.get(GroupName(group_name)) if queue is not None else None), rest

    def _journal_refused(self, refused: Iterable[AckId]) -> None:
        for ack_id in refused:
            group, token = self._addressed(ack_id)
            if group is not None and 0 < len(token) <= 64:  # noqa: PLR2004
                self._tick(self._queues[group.queue])
                self._queues[group.queue].shard.append(
                    Event.ACK_REFUSED, group.queue, group.name, None, group.depth, [refused_row(token)]
                )

    def _write(self, rows: Mapping[Transition, Sequence[Row]]) -> None:
        for (group, event, worker), found in rows.items():
            if found:
                self._queues[group.queue].shard.append(event, group.queue, group.name, worker, group.depth, found)

    def _now(self, group: MemoryGroup) -> int:
        return self._tick(self._queues[group.queue])

    def _tick(self, queue: MemoryQueue) -> int:
        """Return the time for a step on this queue; it never goes back, whatever the clock does."""
        return queue.shard.tick(self._clock.now_ms())
