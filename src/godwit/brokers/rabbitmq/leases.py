"""What this process holds: leases by ack id, read and extended from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

import msgspec

from godwit.brokers.contract import Place
from godwit.brokers.rabbitmq.amqp.channel import Channel
from godwit.brokers.rabbitmq.consumer import GroupConsumer
from godwit.brokers.rabbitmq.ledger.pull import Lease
from godwit.core.journal.shards import shard_name
from godwit.core.names import AckId


class HeldLease(msgspec.Struct, eq=False):
    """A delivery and the channel it came on: only there it can be acknowledged."""

    lease: Lease
    channel: Channel
    consumer: GroupConsumer

    def release(self) -> None:
        """Acknowledge the copy in RabbitMQ, if its channel is still there; otherwise the server has it back anyway."""
        self.consumer.held -= 1
        if self.channel.alive:
            self.channel.ack([self.lease.inbound.tag])


def ack_id_of(lease: Lease) -> AckId:
    """Return what the holder of a lease settles with."""
    return AckId(f"{shard_name(lease.queue)}#{lease.group}#{lease.token}")


def place_of(ack_id: AckId) -> Place | None:
    """Return the queue and group an ack id belongs to, if it looks like one of ours."""
    words = ack_id.split("#")
    return (words[0], words[2]) if len(words) == 4 and words[1] == "0" else None  # noqa: PLR2004 (its four parts)


class LeaseTable:
    """All leases of this broker. The renewing thread extends them while the event loop may be busy."""

    def __init__(self) -> None:
        self._held: dict[AckId, HeldLease] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._held)

    def add(self, held: HeldLease) -> AckId:
        """Begin to hold."""
        ack_id = ack_id_of(held.lease)
        with self._lock:
            self._held[ack_id] = held
        return ack_id

    def take(self, ack_id: AckId) -> HeldLease | None:
        """Stop holding; None when it is not held here any more, or its channel is gone."""
        with self._lock:
            held = self._held.pop(ack_id, None)
        return held if held is not None and held.channel.alive else None

    def extend(
        self, ack_ids: Sequence[AckId], length_ms: int, now_ms: int
    ) -> tuple[list[tuple[Lease, int]], list[AckId]]:
        """Let leases end `length_ms` from now; return those extended and the ack ids refused."""
        extended: list[tuple[Lease, int]] = []
        refused: list[AckId] = []
        with self._lock:
            for ack_id in ack_ids:
                held = self._held.get(ack_id)
                if held is None or not held.channel.alive:
                    refused.append(ack_id)
                    continue
                lease = held.lease
                lease.length_ms, lease.deadline_ms = length_ms, now_ms + length_ms
                extended.append((lease, lease.deadline_ms))
        return extended, refused

    def forgive(self, place: Place, gap_ms: int, now_ms: int) -> list[tuple[Lease, int]]:
        """Let every lease of a place that is shorter than the gap end one length from now."""
        moved = []
        with self._lock:
            for held in self._at(place):
                lease = held.lease
                if lease.length_ms < gap_ms and lease.deadline_ms < now_ms + lease.length_ms:
                    lease.deadline_ms = now_ms + lease.length_ms
                    moved.append((lease, lease.deadline_ms))
        return sorted(moved, key=lambda one: one[0].seq)

    def due(self, place: Place, now_ms: int) -> list[HeldLease]:
        """Take the leases of a place that have run out, oldest deadline first."""
        with self._lock:
            found = [held for held in self._at(place) if held.lease.deadline_ms <= now_ms]
            found.sort(key=lambda held: (held.lease.deadline_ms, held.lease.seq))
            for held in found:
                del self._held[ack_id_of(held.lease)]
        return found

    def outlook(self, place: Place, now_ms: int) -> tuple[int | None, int]:
        """Return when the next lease of a place runs out, and how long its shortest lease is.

        None ends later than one length from now: it was given out before the clock went back, or by a ledger that is
        ahead of it.
        """
        with self._lock:
            leases = [held.lease for held in self._at(place)]
            for lease in leases:
                lease.deadline_ms = min(lease.deadline_ms, now_ms + lease.length_ms)
        if not leases:
            return None, 0
        return min(lease.deadline_ms for lease in leases), min(lease.length_ms for lease in leases)

    def places(self) -> list[Place]:
        """Return where something is held."""
        with self._lock:
            return list(dict.fromkeys((held.lease.queue, held.lease.group) for held in self._held.values()))

    def drop(self, chosen: Callable[[Lease], bool]) -> list[Lease]:
        """Stop holding what is chosen; return it."""
        with self._lock:
            gone = {ack_id: held for ack_id, held in self._held.items() if chosen(held.lease)}
            for ack_id in gone:
                del self._held[ack_id]
        return [held.lease for held in gone.values()]

    def _at(self, place: Place) -> Iterable[HeldLease]:
        return [held for held in self._held.values() if (held.lease.queue, held.lease.group) == place]
