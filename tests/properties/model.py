"""A simple model of a broker, from docs/broker-semantics.md: plain lists, everything by looking through all of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, groupby
from typing import Any

from godwit.brokers.contract import PUBLISH_CHUNK
from godwit.core.clock import ManualClock, milliseconds
from godwit.core.envelope import Envelope
from godwit.core.errors import GroupNotFound, PartialPublish, QueueFull, QueueNotFound
from godwit.core.queues import GroupSpec, Overflow, QueueSpec
from tests.properties.pieces import FOREVER, WAITING, Copy, Group, Queue, counters_of, numbers_in
from tests.properties.sides import Address, Letter, Taken, Word


class Model:
    """What a broker has to do, said as plainly as possible."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._queues: dict[str, Queue] = {}
        self._seqs: dict[str, int] = {}
        self._counter, self._deliveries = count(), count()

    @property
    def now(self) -> int:
        return self._clock.now_ms()

    def restart(self) -> None:
        """Change nothing: everything survives."""

    def _queue(self, name: str) -> Queue:
        if name not in self._queues:
            raise QueueNotFound(name)
        return self._queues[name]

    def _groups(self, name: str, group: str | None) -> list[Group]:
        groups = self._queue(name).groups
        if group is not None and group not in groups:
            raise GroupNotFound(name, group)
        return list(groups.values()) if group is None else [groups[group]]

    def declare(self, queue: QueueSpec, groups: Sequence[GroupSpec]) -> None:
        known = self._queues.setdefault(queue.name, Queue(queue))
        known.spec = queue
        for group in groups:
            known.groups.setdefault(group.name, Group(group, self.now)).spec = group

    def remove(self, queue: str, group: str | None) -> None:
        self._groups(queue, group)
        if group is None:
            del self._queues[queue]
        else:
            del self._queues[queue].groups[group]

    # Publishing

    def publish(self, envelopes: Sequence[Envelope]) -> list[bool]:
        for envelope in envelopes:
            self._groups(envelope.queue, envelope.group)
        receipts: list[bool] = []
        for name, run in groupby(envelopes, key=lambda envelope: envelope.queue):
            same = list(run)
            for start in range(0, len(same), PUBLISH_CHUNK):
                try:
                    receipts += self._accept(self._queues[name], same[start : start + PUBLISH_CHUNK])
                except QueueFull as full:
                    if not receipts:
                        raise
                    raise PartialPublish(tuple(one.id for one in envelopes[: len(receipts)]), str(full)) from full
        return receipts

    def _accept(self, queue: Queue, chunk: Sequence[Envelope], *, moved: bool = False) -> list[bool]:
        window = milliseconds(queue.spec.dedup_window)
        receipts, seen = list[bool](), set[str]()
        for envelope in chunk:
            again = queue.until.get(envelope.id, 0) > self.now or envelope.id in seen
            receipts.append(moved or not window or not again)
            seen.add(envelope.id)
        fresh = [envelope for envelope, is_fresh in zip(chunk, receipts, strict=True) if is_fresh]
        dropped = {name: self._misfits(queue, group, fresh, moved) for name, group in queue.groups.items()}
        queue.published += len(fresh)
        queue.duplicates += len(chunk) - len(fresh)
        for envelope in fresh:
            if window and not moved:
                queue.until[envelope.id] = max(self.now, envelope.deliver_at_ms or 0) + window
            seq = self._next_seq(queue)
            for name, group in queue.groups.items():
                if envelope.group in (None, name):
                    if any(envelope is one for one in dropped[name]):
                        group.dropped += 1
                    else:
                        self._arrive(queue, group, envelope, seq, times=not moved)
        return receipts

    def _next_seq(self, queue: Queue) -> int:
        self._seqs[queue.spec.name] = self._seqs.get(queue.spec.name, 0) + 1
        return self._seqs[queue.spec.name]

    def _misfits(self, queue: Queue, group: Group, fresh: list[Envelope], moved: bool) -> list[Envelope]:
        spec, name = queue.spec, group.spec.name
        sizes = [copy.envelope.size for copy in group.open]
        delayed, dropped = len(group.at("delayed")), []
        for envelope in fresh:
            if envelope.group not in (None, name):
                continue
            later = (envelope.deliver_at_ms or 0) > self.now
            if (
                len(sizes) + 1 > (spec.max_size or FOREVER)
                or sum(sizes) + envelope.size > (spec.max_bytes or FOREVER)
                or (later and delayed + 1 > (spec.max_delayed or FOREVER))
            ):
                if moved or group.spec.overflow is Overflow.REFUSE:
                    raise QueueFull(spec.name, name, "", 0)
                dropped.append(envelope)
            else:
                sizes.append(envelope.size)
                delayed += later
        return dropped

    def _arrive(self, queue: Queue, group: Group, envelope: Envelope, seq: int, *, times: bool) -> Copy:
        lane = 0 if queue.spec.lanes == 1 else sum(envelope.priority > border for border in (20, 60, 80))
        ordered = group.spec.message_ordering and envelope.ordering_key is not None
        if ordered:
            lane = 0 if queue.spec.lanes == 1 else 1
        ready_at = max(self.now, envelope.deliver_at_ms or 0) if times else self.now
        ttl = milliseconds(queue.spec.ttl) if queue.spec.ttl else FOREVER
        expires = min(envelope.expires_at_ms or FOREVER, (envelope.deliver_at_ms or envelope.created_at_ms) + ttl)
        copy = Copy(queue.spec.name, group.spec.name, envelope, seq, lane, ready_at, expires if times else FOREVER)
        behind = ordered and any(one.envelope.ordering_key == envelope.ordering_key for one in group.open)
        group.copies.append(copy)
        if behind:
            copy.place = "blocked"
        else:
            self._wait(copy)
        return copy

    def _wait(self, copy: Copy) -> None:
        copy.place = "delayed" if copy.ready_at > self.now else "ready"
        copy.turn = next(self._counter)

    # What ends and what comes back

    def _end(self, group: Group, copy: Copy, *, dead: str = "") -> None:
        was_blocked = copy.place == "blocked"
        if dead:
            copy.place, copy.kind, copy.dead_at, copy.death = "dead", dead, self.now, next(self._counter)
        else:
            group.copies.remove(copy)
        if group.spec.message_ordering and copy.envelope.ordering_key is not None and not was_blocked:
            same = [one for one in group.at("blocked") if one.envelope.ordering_key == copy.envelope.ordering_key]
            if same:
                self._wait(min(same, key=lambda one: one.seq))

    def _return(self, copy: Copy, delay: int) -> None:
        copy.returned, copy.ready_at = True, self.now + delay
        self._wait(copy)

    def _exhausted(self, group: Group, copy: Copy) -> bool:
        return copy.attempt >= (group.spec.max_delivery_attempts or FOREVER)

    def _look_after(self, group: Group) -> None:
        spec, gap = group.spec, self.now - group.looked_after
        group.looked_after = self.now
        for copy in group.at("leased"):
            if spec.forgive_outages and copy.length < gap:
                copy.deadline += copy.length
        due = [copy for copy in group.at("leased") if copy.deadline <= self.now]
        for copy in sorted(due, key=lambda one: (one.deadline, one.seq)):
            copy.crashes += 1
            if copy.crashes >= (spec.max_crashes or FOREVER):
                self._end(group, copy, dead="poison")
            elif self._exhausted(group, copy):
                self._end(group, copy, dead="transient")
            else:
                self._return(copy, milliseconds(spec.backoff.delay(attempt=copy.attempt)) if spec.backoff else 0)
        expired = [copy for copy in group.at(*WAITING) if copy.expires <= self.now]
        for copy in sorted(expired, key=lambda one: (one.expires, one.seq)):
            self._end(group, copy, dead="expired")
        released = [copy for copy in group.at("delayed") if copy.ready_at <= self.now]
        for copy in sorted(released, key=lambda one: (one.ready_at, one.seq)):
            self._wait(copy)

    # Working

    def pull(
        self, queue: str, group: str, worker: str, limit: int, lease_ms: int, max_bytes: int | None
    ) -> list[Taken]:
        (one,) = self._groups(queue, group)
        self._look_after(one)
        lowest_first = one.pulls % 10 == 9
        flow, taken, sizes = one.spec.flow_control, list[Copy](), list[int]()
        leased = [copy.envelope.size for copy in one.at("leased")]
        for copy in sorted(
            one.at("ready"),
            key=lambda c: (c.lane if lowest_first else -c.lane, not c.returned, c.seq if c.returned else c.turn),
        ):
            size = copy.envelope.size
            in_flight = leased + sizes
            if len(taken) == limit or len(in_flight) >= (flow.max_messages or FOREVER):
                break
            if taken and sum(sizes) + size > (max_bytes or FOREVER):
                break
            if in_flight and sum(in_flight) + size > (flow.max_bytes or FOREVER):
                break
            taken.append(copy)
            sizes.append(size)
        one.pulls += bool(taken)
        return [self._lease(copy, lease_ms) for copy in taken]

    def _lease(self, copy: Copy, lease_ms: int) -> Taken:
        copy.place, copy.attempt, copy.number = "leased", copy.attempt + 1, next(self._deliveries)
        copy.length, copy.deadline = lease_ms, self.now + lease_ms
        counters = (copy.attempt, copy.failures, copy.crashes)
        return Taken(copy.envelope.id, copy.seq, *counters, copy.errors, copy.ready_at, copy.deadline)

    def _leased(self, number: int) -> tuple[Group, Copy] | None:
        for queue in self._queues.values():
            for group in queue.groups.values():
                for copy in group.at("leased"):
                    if copy.number == number:
                        return group, copy
        return None

    def settle(self, words: Sequence[Word]) -> list[int]:
        refused = []
        for word in words:
            found = self._leased(word.number)
            if found is None:
                refused.append(word.number)
            else:
                self._settle(*found, word)
        return refused

    def _settle(self, group: Group, copy: Copy, word: Word) -> None:
        if word.verb in ("retry", "give up"):
            copy.failures += 1
            copy.errors += (word.text,) if word.text is not None else ()
        if word.verb == "ack":
            self._end(group, copy)
        elif word.verb == "give up":
            self._end(group, copy, dead=word.kind)
        elif word.verb == "hand back":
            copy.attempt -= 1
            self._return(copy, 0)
        elif self._exhausted(group, copy):
            self._end(group, copy, dead="transient")
        else:
            self._return(copy, word.delay_ms)

    def extend(self, numbers: Sequence[int], lease_ms: int) -> list[int]:
        refused = []
        for number in numbers:
            found = self._leased(number)
            if found is None:
                refused.append(number)
            else:
                found[1].length, found[1].deadline = lease_ms, self.now + lease_ms
        return refused

    # Keeping

    def cancel(self, queue: str, message_id: str) -> bool:
        found = False
        for group in self._groups(queue, None):
            for copy in sorted(group.at(*WAITING), key=lambda one: -one.seq):
                if copy.envelope.id == message_id:
                    self._end(group, copy)
                    found = True
        return found

    def purge(self, queue: str, group: str | None) -> int:
        purged = 0
        for one in self._groups(queue, group):
            purged += len(one.at(*WAITING))
            one.copies = one.at("leased", "dead")
        return purged

    def maintain(self) -> None:
        for queue in self._queues.values():
            for group in queue.groups.values():
                self._look_after(group)
        for queue in self._queues.values():
            target = self._queues.get(queue.spec.dead_letter_queue or "")
            if target is not None and target.groups:
                for group in queue.groups.values():
                    self._feed(group, target)

    def _feed(self, group: Group, target: Queue) -> None:
        for copy in sorted(group.at("dead"), key=lambda one: one.death):
            old = copy.envelope
            plain = (old.id, target.spec.name, old.body, old.size, old.created_at_ms, old.type, old.priority)
            try:
                self._accept(target, [Envelope(*plain, old.ordering_key)], moved=True)
            except QueueFull:
                return
            group.copies.remove(copy)

    def letters(self, name: str) -> list[Letter]:
        found = [queue for queue in self._queues.values() if name in (queue.spec.name, queue.spec.dead_letter_queue)]
        if not found:
            raise QueueNotFound(name)
        letters = [
            Letter(copy.address, copy.envelope.id, copy.kind, copy.dead_at, counters_of(copy), copy.errors)
            for queue in found
            for group in queue.groups.values()
            for copy in sorted(group.at("dead"), key=lambda one: one.death)
        ]
        return sorted(letters, key=lambda letter: letter.address[:2])

    def _dead(self, letters: Sequence[Address]) -> tuple[list[tuple[Queue, Group, Copy]], list[Address]]:
        found, missing = dict[Address, tuple[Queue, Group, Copy]](), list[Address]()
        for address in letters:
            queue = self._queues.get(address[0])
            group = queue.groups.get(address[1]) if queue else None
            copies = [copy for copy in group.at("dead") if copy.seq == address[2]] if group else []
            if not queue or not group or not copies or address in found:
                missing.append(address)
            else:
                found[address] = (queue, group, copies[0])
        return list(found.values()), missing

    def replay(self, letters: Sequence[Address]) -> list[Address]:
        found, missing = self._dead(letters)
        for queue, group, _ in found:
            coming = [copy.envelope.size for _, its, copy in found if its is group]
            sizes = [copy.envelope.size for copy in group.open] + coming
            if len(sizes) > (queue.spec.max_size or FOREVER) or sum(sizes) > (queue.spec.max_bytes or FOREVER):
                raise QueueFull(queue.spec.name, group.spec.name, "", 0)
        groups = list(dict.fromkeys(group for _, group, _ in found))
        for queue, group, copy in sorted(found, key=lambda one: groups.index(one[1])):
            group.copies.remove(copy)
            self._arrive(queue, group, copy.envelope, self._next_seq(queue), times=False).errors = copy.errors
        return missing

    def discard(self, letters: Sequence[Address]) -> list[Address]:
        found, missing = self._dead(letters)
        for _, group, copy in found:
            group.copies.remove(copy)
        return missing

    # Looking

    def stats(self) -> dict[str, Any]:
        return {
            name: (
                queue.published,
                queue.duplicates,
                {one: numbers_in(queue.spec, group) for one, group in queue.groups.items()},
            )
            for name, queue in self._queues.items()
        }

    def copies(self, queue: str) -> dict[Address, Any]:
        return {
            copy.address: (
                copy.envelope.id,
                copy.place if copy.place in ("leased", "dead") else "waiting",
                copy.ready_at,
                copy.deadline if copy.place == "leased" else None,
                *counters_of(copy),
            )
            for group in self._queue(queue).groups.values()
            for copy in group.copies
        }
