"""Random lives of messages on a broker, and what the tables must say about them: one transition after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from godwit.brokers.contract import Ack, Broker, Delivery, GiveUp, HandBack, Nack, Settlement
from godwit.core.clock import ManualClock, from_ms
from godwit.core.failures.failure import FailureKind
from godwit.core.journal.statuses import Status, least_finished
from godwit.core.journal.vocabulary import Event
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message, Routing, Scheduling
from godwit.core.queues import GroupSpec, JournalBody, QueueSpec

QUEUES = ("orders", "mail")
LEASE = timedelta(seconds=10)
WINDOW = timedelta(seconds=30)


class Life:
    """Does whatever can be done with messages, at random but the same for the same seed."""

    def __init__(self, broker: Broker, clock: ManualClock, seed: int) -> None:
        self.broker = broker
        self.clock = clock
        self.random = Random(seed)
        self.held: list[Delivery] = []
        self.count = 0

    async def begin(self) -> None:
        for queue in QUEUES:
            await self._declare(queue)

    async def live(self, steps: int) -> None:
        for _ in range(steps):
            await self.random.choices(
                [self._publish, self._pull, self._settle, self._pass, self._extend, self._letters, self._clear],
                weights=[30, 30, 30, 12, 4, 5, 2],
            )[0]()

    async def _declare(self, queue: str) -> None:
        groups = [GroupSpec(name="default", max_crashes=2), GroupSpec(name="audit", max_delivery_attempts=3)]
        spec = QueueSpec(name=queue, dedup_window=WINDOW, journal_body=JournalBody.ON, ttl=timedelta(minutes=5))
        await self.broker.declare(spec, groups[: self.random.choice([1, 2])])

    async def _publish(self) -> None:
        messages = []
        for _ in range(self.random.choice([1, 1, 3, 8])):
            self.count += 1
            number = self.count if self.random.random() < 0.8 else self.random.randint(1, self.count)
            later = self.random.random() < 0.15
            due = from_ms(self.clock.now_ms()) + timedelta(seconds=20) if later else None
            messages.append(
                Message(
                    id=f"m{number}",
                    queue=self.random.choice(QUEUES),
                    type=self.random.choice(["order", "news"]),
                    priority=self.random.choice([5, 50, 90]),
                    payload={"n": number, "nul": "\0" if number % 7 == 0 else ""},
                    routing=Routing(consumer_group="default") if self.random.random() < 0.2 else Routing(),
                    scheduling=Scheduling(deliver_at=due) if due else None,
                )
            )
        await self.broker.publish([seal(message) for message in messages])

    async def _pull(self) -> None:
        queue = self.random.choice(QUEUES)
        stats = {one.name: one for one in await self.broker.stats()}
        for group in stats[queue].groups:
            worker = self.random.choice(["w1", "w2"])
            limit = self.random.choice([1, 3, 10])
            self.held += await self.broker.pull(queue, group.name, worker=worker, limit=limit, lease=LEASE)

    async def _settle(self) -> None:
        self.random.shuffle(self.held)
        take, self.held = self.held[:6], self.held[6:]
        await self.broker.settle([self._word(delivery) for delivery in take])

    def _word(self, delivery: Delivery) -> Settlement:
        draw = self.random.random()
        if draw < 0.6:
            return Ack(delivery.ack_id, run_ms=self.random.randint(1, 90), result=b'{"done": true}')
        if draw < 0.8:
            return Nack(delivery.ack_id, timedelta(seconds=self.random.choice([0, 5])), run_ms=3)
        if draw < 0.9:
            return GiveUp(delivery.ack_id, FailureKind.PERMANENT)
        return HandBack(delivery.ack_id)

    async def _pass(self) -> None:
        self.clock.advance(timedelta(seconds=self.random.choice([1, 6, 12, 40])))
        await self.broker.maintain()

    async def _extend(self) -> None:
        await self.broker.extend([delivery.ack_id for delivery in self.held[:3]], LEASE)

    async def _letters(self) -> None:
        letters = await self.broker.dead_letters.page(self.random.choice(QUEUES), limit=3)
        chosen = [letter.id for letter in letters]
        if self.random.random() < 0.6:
            await self.broker.dead_letters.replay(chosen)
        else:
            await self.broker.dead_letters.discard(chosen)

    async def _clear(self) -> None:
        queue = self.random.choice(QUEUES)
        match self.random.randint(0, 4):
            case 0:
                await self.broker.purge(queue)
            case 1:
                await self.broker.remove(queue)
                await self._declare(queue)
            case 2:
                await self._declare(queue)
            case _:
                await self.broker.cancel(queue, f"m{self.random.randint(1, self.count + 1)}")


@dataclass
class Oracle:
    """The tables as a naive reader of single rows would keep them."""

    copies: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)
    ended: list[tuple[tuple[str, str, int], str, Status]] = field(default_factory=list)
    finished: list[tuple[str, Status]] = field(default_factory=list)
    worst: dict[str, Status] = field(default_factory=dict)
    work: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)

    def apply(self, row: dict[str, Any]) -> None:
        event = row["event"]
        address: Any = (row["queue"], row["group"], row.get("publish_seq"))
        self._count(row)
        match event:
            case Event.ENQUEUED | Event.SCHEDULED | Event.REPLAYED:
                status = Status.SCHEDULED if event is Event.SCHEDULED else Status.PENDING
                self.copies[address] = {
                    "id": row["message_id"], "status": status, "attempt": 0, "failures": 0, "crashes": 0,
                    "delivery_id": None, "lease_until": None, "ready_at": row["ready_at"], "worker": None,
                }  # fmt: skip
                if event is Event.REPLAYED:
                    self._end((row["queue"], row["group"], row["former_seq"]), None, superseded=True)
            case Event.DELIVERED:
                self._change(row, address, Status.PROCESSING)
                self.copies[address] |= {key: row[key] for key in ("delivery_id", "lease_until", "worker")}
            case Event.EXTENDED | Event.LEASE_MOVED:
                self.copies[address]["lease_until"] = row["lease_until"]
            case Event.NACKED | Event.POSTPONED | Event.LEASE_EXPIRED | Event.HANDED_BACK:
                self._change(row, address, Status.PENDING)
                self.copies[address]["ready_at"] = row["ready_at"]
            case Event.DEAD_LETTERED | Event.MESSAGE_EXPIRED:
                self._change(row, address, Status.FAILED if event is Event.DEAD_LETTERED else Status.EXPIRED)
            case Event.ACKED:
                self._end(address, Status.COMPLETED)
            case Event.CANCELLED:
                self._end(address, Status.CANCELLED)
            case Event.DISCARDED:
                self._end(address, None)
            case Event.PURGED | Event.GROUP_REMOVED | Event.QUEUE_REMOVED:
                self._clear(row, event)

    def _change(self, row: dict[str, Any], address: tuple[str, str, int], status: Status) -> None:
        self.copies[address] |= {"status": status, "delivery_id": None, "lease_until": None}
        self.copies[address] |= {key: row[key] for key in ("attempt", "failures", "crashes")}

    def _end(self, address: tuple[str, str, int], status: Status | None, *, superseded: bool = False) -> None:
        copy = self.copies.pop(address)
        status = status or copy["status"]
        self.ended.append((address, copy["id"], status))
        if not superseded:
            self.worst[copy["id"]] = least_finished([status, self.worst.get(copy["id"], Status.COMPLETED)])
        if all(other["id"] != copy["id"] for other in self.copies.values()):
            self.finished.append((copy["id"], self.worst.pop(copy["id"])))

    def _clear(self, row: dict[str, Any], event: Event) -> None:
        dead = (Status.FAILED, Status.EXPIRED)
        for address, copy in list(self.copies.items()):
            here = address[0] == row["queue"] and row["group"] in (None, address[1])
            waits = copy["status"] in (Status.SCHEDULED, Status.PENDING)
            if here and (waits or event is not Event.PURGED):
                self._end(address, None if copy["status"] in dead else Status.CANCELLED)

    def _count(self, row: dict[str, Any]) -> None:
        failed = (Event.NACKED, Event.LEASE_EXPIRED, Event.DEAD_LETTERED, Event.MESSAGE_EXPIRED)
        if row["worker"] is not None and row["event"] in (Event.ACKED, *failed):
            store_services = self.work.setdefault((row["queue"], row["group"], row["worker"]), [0, 0])
            store_services[0 if row["event"] is Event.ACKED else 1] += 1

    @property
    def open_messages(self) -> dict[str, Status]:
        found: dict[str, list[Status]] = {}
        for copy in self.copies.values():
            found.setdefault(copy["id"], []).append(copy["status"])
        return {message_id: least_finished(statuses) for message_id, statuses in found.items()}
