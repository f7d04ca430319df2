"""The model's first half: queues, groups, and how a published message becomes copies that wait."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, groupby

from godwit.brokers.contract import PUBLISH_CHUNK
from godwit.core.clock import ManualClock, milliseconds
from godwit.core.errors import GroupNotFound, PartialPublish, QueueFull, QueueNotFound
from godwit.core.messages.envelope import Envelope
from godwit.core.queues import GroupSpec, Overflow, QueueSpec
from tests.properties.model_copies import FOREVER, Copy, Group, Queue


class Accepting:
    """The half of the model up to the moment a copy waits."""

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
