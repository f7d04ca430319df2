"""A simple model of a broker, from docs/broker-semantics.md: plain lists, everything by looking through all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from godwit.brokers.arguments import check_pull
from godwit.brokers.arguments import lease_ms as checked_lease_ms
from godwit.brokers.contract import NO_WAIT
from godwit.core.clock import milliseconds
from godwit.core.error_text import clean
from godwit.core.errors import QueueFull, QueueNotFound
from godwit.core.failures.failure import MESSAGE_CHARACTERS
from godwit.core.journal.vocabulary import Event
from godwit.core.limits import bounded
from godwit.core.messages.envelope import Envelope
from tests.properties.model_copies import FOREVER, WAITING, Copy, Group, Queue, counters_of, numbers_in
from tests.properties.publish_model import Accepting
from tests.properties.sides import Address, Letter, Taken, Word, span


class Model(Accepting):
    """What a broker has to do, said as plainly as possible."""

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
        return copy.failures + copy.crashes >= (group.spec.max_delivery_attempts or FOREVER)

    def _maintain(self, group: Group) -> None:
        spec, gap = group.spec, self.now - group.looked_after
        group.looked_after = self.now
        for copy in group.at("leased"):
            if spec.forgive_outages and copy.length < gap:
                copy.deadline = max(copy.deadline, self.now + copy.length)
        due = [copy for copy in group.at("leased") if copy.deadline <= self.now]
        for copy in sorted(due, key=lambda one: (one.deadline, one.seq)):
            copy.crashes += 1
            if copy.crashes >= (spec.max_crashes or FOREVER):
                self._end(group, copy, dead="poison")
            elif self._exhausted(group, copy):
                self._end(group, copy, dead="transient")
            else:
                self._return(
                    copy, milliseconds(spec.backoff.delay(attempt=copy.failures + copy.crashes)) if spec.backoff else 0
                )
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
        check_pull(limit, NO_WAIT, max_bytes, worker)
        lease_ms = checked_lease_ms(span(lease_ms))
        (one,) = self._groups(queue, group)
        self._maintain(one)
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
        if word.verb in ("retry", "give up", "postpone"):
            copy.errors += () if word.text is None else (clean(word.text, limit=MESSAGE_CHARACTERS),)
        if word.verb == "ack":
            self._end(group, copy)
        elif word.verb == "give up":
            self._end(group, copy, dead=word.kind)
        elif word.verb == "hand back":
            copy.attempt -= 1
            self._return(copy, 0)
        elif word.verb == "retry" and self._exhausted(group, copy):
            self._end(group, copy, dead="transient")
        else:
            self._return(copy, milliseconds(bounded(span(word.delay_ms))))

    def extend(self, numbers: Sequence[int], lease_ms: int) -> list[int]:
        refused = []
        lease_ms = checked_lease_ms(span(lease_ms))
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

    def hold(self, event: Event, queue: str, group: str | None) -> None:
        self._groups(queue, group)  # changes nothing here

    def purge(self, queue: str, group: str | None) -> int:
        purged = 0
        for one in self._groups(queue, group):
            purged += len(one.at(*WAITING))
            one.copies = one.at("leased", "dead")
        return purged

    def maintain(self) -> None:
        for queue in self._queues.values():
            for group in queue.groups.values():
                self._maintain(group)
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
