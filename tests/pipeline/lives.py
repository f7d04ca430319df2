"""Lives: queues of a real broker driven at random, every event of the contract among them, and what a reader sees.

A life is cut into acts, and audited after each. Its rows can be edited where no broker would do such a thing.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Final, NamedTuple

from godwit.brokers.contract import Ack, Delivery, GiveUp, HandBack, Nack, Postpone, Settlement
from godwit.brokers.memory import MemoryBroker
from godwit.core.clock import ManualClock, from_ms
from godwit.core.failures.failure import FailureKind, ProcessingError
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.journal.projection import CopyState
from godwit.core.journal.shards import Position
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message, Scheduling
from godwit.core.queues import GroupSpec, QueueSpec
from tests.pipeline.histories import Row, timed

QUEUES: Final = ("orders", "mail")
ORDERED: Final = "ordered"
GROUPS: Final = (ORDERED, "plain", "late")
LEASE: Final = timedelta(seconds=15)
END: Final = timedelta(hours=2)
"""All lives end at the same time after their beginning."""


class Life:
    """A memory broker driven at random from a seed: the same seed and steps are the same life."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self._began_ms = self.clock.now_ms()
        self.broker = MemoryBroker(clock=self.clock)
        self._held: list[Delivery] = []
        self._number = 0
        self._groups: dict[str, set[str]] = {}

    async def begin(self) -> None:
        await self.broker.__aenter__()
        for queue in QUEUES:
            await self._declare(queue, ORDERED, "plain")

    async def _declare(self, queue: str, *groups: str) -> None:
        specs = [GroupSpec(name=group, message_ordering=group == ORDERED) for group in groups]
        await self.broker.declare(QueueSpec(name=queue), specs)
        self._groups.setdefault(queue, set()).update(groups)

    async def go_on(self, steps: int) -> None:
        deeds = {
            self.publish: 20, self.pull: 30, self.settle: 40, self.wait: 10, self.maintain: 8, self.extend: 3,
            self.cancel: 2, self.purge: 1, self.letters: 3, self.change_groups: 1, self.remove_queue: 0.5,
        }  # fmt: skip
        for _ in range(steps):
            await self.random.choices(list(deeds), list(deeds.values()))[0]()

    async def end(self) -> None:
        """Let everything that is leased run out, and what is due be released."""
        until = self._began_ms + int(END.total_seconds() * 1_000)
        # Not looked at for so long, the broker gives every lease another length.
        for seconds in (640, 630, 620, 610, 600, 0):
            left_ms = until - self.clock.now_ms() - 1_000 * seconds
            self.clock.advance(timedelta(milliseconds=left_ms))
            await self.broker.maintain()

    async def publish(self) -> None:
        queue = self._queue()
        if self._groups.get(queue):
            await self.broker.publish([self._envelope(queue) for _ in range(self.random.randint(1, 5))])

    def _queue(self) -> str:
        return self.random.choice(QUEUES)

    def _envelope(self, queue: str) -> Envelope:
        self._number += 1
        chance, now = self.random.random(), self.clock.now_ms()
        return seal(
            Message(
                id=f"m{self._number}" if chance < 0.95 else f"m{self.random.randint(1, self._number)}",
                queue=queue,
                priority=self.random.choice([10, 50, 90]),
                ordering_key=self.random.choice(["a", "b", "c", None]),
                created_at=from_ms(now),
                scheduling=Scheduling(deliver_at=from_ms(now + 20_000)) if chance < 0.1 else None,
                expires_at=from_ms(now + 60_000) if 0.1 < chance < 0.15 else None,
            )
        )

    async def pull(self) -> None:
        queue = self._queue()
        if self._groups.get(queue):
            group = self.random.choice(sorted(self._groups[queue]))
            limit = self.random.randint(1, 4)
            self._held += await self.broker.pull(queue, group, worker="w", limit=limit, lease=LEASE)

    async def settle(self) -> None:
        if not self._held:
            return
        ack_id = self._held.pop(self.random.randrange(len(self._held))).ack_id
        error = ProcessingError(message="no such user 7", timestamp=from_ms(self.clock.now_ms()))
        delay = timedelta(seconds=self.random.randint(0, 5))
        words: list[Settlement] = [
            *[Ack(ack_id)] * 5, Nack(ack_id, delay, error), GiveUp(ack_id, FailureKind.PERMANENT, error),
            HandBack(ack_id), Postpone(ack_id, delay),
        ]  # fmt: skip
        await self.broker.settle([self.random.choice(words)])

    async def extend(self) -> None:
        await self.broker.extend([delivery.ack_id for delivery in self._held[-2:]], LEASE)

    async def wait(self) -> None:
        self.clock.advance(timedelta(milliseconds=self.random.randint(1, 8_000)))

    async def maintain(self) -> None:
        await self.broker.maintain()

    async def cancel(self) -> None:
        queue = self._queue()
        if queue in self._groups:
            await self.broker.cancel(queue, f"m{self.random.randint(1, self._number + 1)}")

    async def purge(self) -> None:
        queue = self._queue()
        if queue in self._groups:
            groups = [None, *sorted(self._groups[queue])]
            await self.broker.purge(queue, self.random.choice(groups))

    async def letters(self) -> None:
        queue = self._queue()
        if queue in self._groups:
            found = [letter.id for letter in await self.broker.dead_letters.page(queue, limit=2)]
            if self.random.random() < 0.5:
                await self.broker.dead_letters.replay(found)
            else:
                await self.broker.dead_letters.discard(found)

    async def change_groups(self) -> None:
        queue = self._queue()
        if queue in self._groups:
            there = self._groups[queue]
            group = self.random.choice(GROUPS)
            if group in there and len(there) > 1:
                await self.broker.remove(queue, group)
                there.discard(group)
            else:
                await self._declare(queue, group)

    async def remove_queue(self) -> None:
        queue = self._queue()
        if queue in self._groups:
            await self.broker.remove(queue)
            del self._groups[queue]
        else:
            await self._declare(queue, ORDERED, "plain")

    async def seen(self) -> Seen:
        """Return everything the broker's journal holds, and its own listing."""
        shards = dict(await self.broker.journal.shards())
        queues = {stats.name for stats in await self.broker.stats()}
        rows = {shard: await self._rows(shard) for shard in shards}
        listing = {
            shard: await self.broker.journal.snapshot(shard.rpartition("#")[0])
            for shard in shards
            if shard.rpartition("#")[0] in queues
        }
        return Seen(rows, {shard: list(listing[shard].copies) if shard in listing else [] for shard in shards})

    async def _rows(self, shard: str) -> list[Row]:
        found: list[Row] = []
        position: Position | None = None
        while chunks := await self.broker.journal.read(shard, position, limit=10_000):
            found += [row for chunk in chunks for row in rows_of(decode_chunk(chunk), shard)]
            position = Position(found[-1]["epoch"], found[-1]["seq"])
        return list(timed(found))


class Seen(NamedTuple):
    """What a reader sees of a broker: the rows and the copies of each shard."""

    rows: dict[str, list[Row]]
    copies: dict[str, list[CopyState]]
