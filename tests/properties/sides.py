"""The two sides of a comparison: the same steps in, the same plain values out.

Ack ids, letter ids and epochs differ from broker to broker. A delivery is therefore known by its number (0, 1, 2, ...
in the order of delivery), a dead letter by its address (queue, group, publish_seq).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple, Protocol

from godwit.brokers.contract import (
    Ack,
    Broker,
    DeadLetter,
    GiveUp,
    GroupStats,
    HandBack,
    LetterId,
    Nack,
    Postpone,
    Settlement,
)
from godwit.core.clock import from_ms
from godwit.core.failures.failure import FailureKind, ProcessingError
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.journal.projection import CopyState
from godwit.core.journal.shards import Position, shard_name
from godwit.core.journal.vocabulary import LAYOUTS, Event
from godwit.core.messages.envelope import Envelope
from godwit.core.names import AckId, GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from tests.conformance.harness import Row

Address = tuple[str, str, int]


class Taken(NamedTuple):
    """A delivery, without its ack id."""

    id: str
    seq: int
    attempt: int
    failures: int
    crashes: int
    errors: tuple[str, ...]
    ready_at: int
    until: int


class Word(NamedTuple):
    """What a worker says about delivery `number`: `verb` is ack, retry, give up or hand back."""

    number: int
    verb: str
    delay_ms: int = 0
    text: str | None = None
    kind: FailureKind = FailureKind.PERMANENT


class Letter(NamedTuple):
    """A dead letter, without its id."""

    address: Address
    message_id: str
    kind: str
    dead_at: int
    counters: tuple[int, int, int]
    errors: tuple[str, ...]


KEEPER: Final = "keeper"
"""The actor of all that a broker is asked to do to its queues."""


class Side(Protocol):
    """A broker, or a model of one."""

    def declare(self, queue: QueueSpec, groups: Sequence[GroupSpec]) -> None: ...
    def remove(self, queue: str, group: str | None) -> None: ...
    def purge(self, queue: str, group: str | None) -> int: ...
    def hold(self, event: Event, queue: str, group: str | None) -> None: ...
    def publish(self, envelopes: Sequence[Envelope]) -> list[bool]: ...
    def pull(
        self, queue: str, group: str, worker: str, limit: int, lease_ms: int, max_bytes: int | None
    ) -> list[Taken]: ...
    def settle(self, words: Sequence[Word]) -> list[int]: ...
    def extend(self, numbers: Sequence[int], lease_ms: int) -> list[int]: ...
    def cancel(self, queue: str, message_id: str) -> bool: ...
    def maintain(self) -> None: ...
    def letters(self, name: str) -> list[Letter]: ...
    def replay(self, letters: Sequence[Address]) -> list[Address]: ...
    def discard(self, letters: Sequence[Address]) -> list[Address]: ...
    def stats(self) -> dict[str, Any]: ...
    def copies(self, queue: str) -> dict[Address, Any]: ...
    def restart(self) -> None: ...


class Sight(NamedTuple):
    """All that can be seen of a broker after a step; what is not there has no entry."""

    stats: dict[str, Any]
    rows: dict[str, list[Row]]
    """The new journal rows of each queue that has a journal."""
    copies: dict[str, tuple[CopyState, ...]]


def span(number: int) -> timedelta:
    """Return so many milliseconds, or the longest duration there is."""
    try:
        return timedelta(milliseconds=number)
    except OverflowError:
        return timedelta.max if number > 0 else timedelta.min


def numbers_of(stats: GroupStats) -> tuple[Any, ...]:
    """Return what is counted of a group, in a fixed order."""
    places = (stats.ready, stats.blocked, stats.delayed, stats.leased, stats.dead)
    return (*places, stats.bytes, stats.leased_bytes, stats.dropped, stats.full)


def states_of(copies: Iterable[CopyState]) -> dict[Address, Any]:
    """Return the states of copies by address, without their delivery ids."""
    return {
        one.address: (
            *(one.message_id, one.state, one.ready_at, one.lease_until),
            *(one.attempt, one.failures, one.crashes),
        )
        for one in copies
    }


class BrokerSide:
    """A broker driven through its async port."""

    def __init__(self, make: Callable[[], Broker], loop: asyncio.AbstractEventLoop) -> None:
        self._make, self._loop = make, loop
        self._run = loop.run_until_complete
        self._ack_ids: list[AckId] = []
        self._letter_ids: dict[Address, LetterId] = {}
        self._read: dict[str, Position] = {}
        self._delivered: dict[str, int] = {}
        self.broker = self._open()

    def _open(self) -> Broker:
        broker = self._make()
        self._run(broker.__aenter__())
        return broker

    def close(self) -> None:
        self._run(self.broker.close())

    def restart(self) -> None:
        self.close()
        self.broker = self._open()

    def declare(self, queue: QueueSpec, groups: Sequence[GroupSpec]) -> None:
        self._run(self.broker.declare(queue, groups))

    def remove(self, queue: str, group: str | None) -> None:
        self._run(self.broker.remove(QueueName(queue), GroupName(group) if group else None, actor=KEEPER))

    def purge(self, queue: str, group: str | None) -> int:
        return self._run(self.broker.purge(QueueName(queue), GroupName(group) if group else None, actor=KEEPER))

    def hold(self, event: Event, queue: str, group: str | None) -> None:
        where = QueueName(queue), GroupName(group) if group else None
        self._run(self.broker.note_hold(event, *where, hold=None, actor=KEEPER))

    def publish(self, envelopes: Sequence[Envelope]) -> list[bool]:
        receipts = self._run(self.broker.publish(envelopes))
        assert [receipt.id for receipt in receipts] == [envelope.id for envelope in envelopes]
        return [receipt.fresh for receipt in receipts]

    def pull(
        self, queue: str, group: str, worker: str, limit: int, lease_ms: int, max_bytes: int | None
    ) -> list[Taken]:
        lease = span(lease_ms)
        call = self.broker.pull(
            QueueName(queue), GroupName(group), worker=worker, limit=limit, lease=lease, max_bytes=max_bytes
        )
        taken = []
        for one in self._run(call):
            self._ack_ids.append(one.ack_id)
            texts = tuple(error.message for error in one.errors)
            counters = (one.attempt, one.failures, one.crashes)
            taken.append(Taken(one.message_id, one.publish_seq, *counters, texts, one.ready_at_ms, one.lease_until_ms))
        return taken

    def settle(self, words: Sequence[Word]) -> list[int]:
        refused = self._run(self.broker.settle([self._settlement(word) for word in words]))
        return self._numbers(refused)

    def _settlement(self, word: Word) -> Settlement:
        ack_id = self._ack_ids[word.number]
        error = ProcessingError(message=word.text, timestamp=from_ms(0)) if word.text is not None else None
        match word.verb:
            case "ack":
                return Ack(ack_id)
            case "retry":
                return Nack(ack_id, span(word.delay_ms), error)
            case "postpone":
                return Postpone(ack_id, span(word.delay_ms), error)
            case "give up":
                return GiveUp(ack_id, word.kind, error)
            case _:
                return HandBack(ack_id)

    def extend(self, numbers: Sequence[int], lease_ms: int) -> list[int]:
        ack_ids = [self._ack_ids[number] for number in numbers]
        return self._numbers(self._run(self.broker.extend(ack_ids, span(lease_ms))))

    def _numbers(self, ack_ids: Sequence[AckId]) -> list[int]:
        return [self._ack_ids.index(ack_id) for ack_id in ack_ids]

    def cancel(self, queue: str, message_id: str) -> bool:
        return self._run(self.broker.cancel(QueueName(queue), MessageId(message_id)))

    def maintain(self) -> None:
        self._run(self.broker.maintain())

    def letters(self, name: str) -> list[Letter]:
        """Page through all letters; inside a queue and group they come in order of death."""
        found: list[DeadLetter] = []
        while page := self._run(
            self.broker.dead_letters.page(QueueName(name), after=found[-1].id if found else None, limit=3)
        ):
            found += page
        letters = []
        for one in found:
            address = (str(one.queue), str(one.group), one.publish_seq)
            self._letter_ids[address] = one.id
            counters = (one.attempt, one.failures, one.crashes)
            texts = tuple(error.message for error in one.errors)
            letters.append(Letter(address, one.envelope.id, str(one.kind), one.dead_at_ms, counters, texts))
        return sorted(letters, key=lambda letter: letter.address[:2])

    def replay(self, letters: Sequence[Address]) -> list[Address]:
        return self._addresses(self._run(self.broker.dead_letters.replay([self._letter_ids[one] for one in letters])))

    def discard(self, letters: Sequence[Address]) -> list[Address]:
        return self._addresses(self._run(self.broker.dead_letters.discard([self._letter_ids[one] for one in letters])))

    def _addresses(self, letter_ids: Sequence[LetterId]) -> list[Address]:
        known = {letter_id: address for address, letter_id in self._letter_ids.items()}
        return [known[letter_id] for letter_id in letter_ids]

    def stats(self) -> dict[str, Any]:
        return self._run(self._stats())

    async def _stats(self) -> dict[str, Any]:
        return {
            one.name: (one.published, one.duplicates, {group.name: numbers_of(group) for group in one.groups})
            for one in await self.broker.stats()
        }

    def copies(self, queue: str) -> dict[Address, Any]:
        snapshot = self._run(self.broker.journal.snapshot(QueueName(queue)))
        return states_of(snapshot.copies)

    def look(self) -> Sight:
        """Look at everything at once: a question at a time would take most of a run."""
        return self._run(self._look())

    async def _look(self) -> Sight:
        journal = self.broker.journal
        stats, shards = await asyncio.gather(self._stats(), journal.shards())
        kept = sorted({shard.partition("#")[0] for shard in shards})
        alive = sorted(stats)
        rows = asyncio.gather(*map(self._new_rows, kept))
        snapshots = await asyncio.gather(*(journal.snapshot(QueueName(name)) for name in alive))
        copies = dict(zip(alive, (snapshot.copies for snapshot in snapshots), strict=True))
        return Sight(stats, dict(zip(kept, await rows, strict=True)), copies)

    async def _new_rows(self, queue: str) -> list[Row]:
        shard, after = shard_name(queue), self._read.get(queue)
        rows = [
            row
            for chunk in await self.broker.journal.read(shard, after, limit=10_000)
            for row in rows_of(decode_chunk(chunk), shard)
            if after is None or row["seq"] > after.seq
        ]
        if rows:
            self._read[queue] = Position(rows[-1]["epoch"], rows[-1]["seq"])
        return rows

    def comparable(self, row: Row) -> dict[str, Any]:
        """Return a row without what differs between brokers: epoch, body and the names of deliveries."""
        token = row.get("delivery_id")
        if token is not None:
            known = self._delivered
            row = row | {
                "delivery_id": known.setdefault(token, len(known)) if row["event"] == "delivered" else known.get(token)
            }
        fields = ("seq", "at", "event", "queue", "group", "worker", "depth", "actor", *LAYOUTS[row["event"]])
        return {field: row.get(field) for field in fields if field != "body"}
