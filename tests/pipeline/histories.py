"""Histories that a real broker went through, as rows of a journal."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from godwit.brokers.contract import Ack, Delivery, GiveUp, HandBack, Nack, Settlement, Snapshot
from godwit.brokers.memory import MemoryBroker
from godwit.core.clock import ManualClock, from_ms
from godwit.core.failures.failure import FailureKind, ProcessingError
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.journal.shards import Position, shard_name
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message, Scheduling
from godwit.core.queues import GroupSpec, JournalBody, QueueSpec
from godwit.pipeline.source.schema import journal_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]

QUEUE: Final = "orders"
SHARD: Final = shard_name(QUEUE)
ORDERED: Final = "ordered"
PLAIN: Final = "plain"
LEASE: Final = timedelta(seconds=15)
_TIMES: Final = ("at", "ready_at", "deliver_at", "expires_at", "lease_until")


class History:
    """A memory broker driven at random; every journal it writes can be read as rows."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.broker = MemoryBroker(clock=self.clock)
        self._held: list[Delivery] = []
        self._number = 0

    async def begin(self) -> None:
        await self.broker.__aenter__()
        groups = [GroupSpec(name=ORDERED, message_ordering=True), GroupSpec(name=PLAIN)]
        await self.broker.declare(QueueSpec(name=QUEUE, journal_body=JournalBody.ON), groups)

    async def go_on(self, steps: int) -> None:
        for _ in range(steps):
            deed = self.random.choices(
                [self.publish, self.pull, self.settle, self.wait, self.maintain, self.cancel, self.purge, self.replay],
                [20, 30, 30, 10, 10, 2, 1, 3],
            )[0]
            await deed()

    async def publish(self) -> None:
        await self.broker.publish([self._envelope() for _ in range(self.random.randint(1, 5))])

    def _envelope(self) -> Envelope:
        self._number += 1
        later = self.random.random() < 0.1
        return seal(
            Message(
                id=f"m{self._number}",
                queue=QUEUE,
                type=self.random.choice(["order.created", "order.paid"]),
                priority=self.random.choice([10, 50, 70, 90]),
                ordering_key=self.random.choice(["a", "b", "c", None]),
                payload={"number": self._number},
                created_at=from_ms(self.clock.now_ms()),
                scheduling=Scheduling(deliver_at=from_ms(self.clock.now_ms() + 20_000)) if later else None,
                expires_at=from_ms(self.clock.now_ms() + 60_000) if self.random.random() < 0.05 else None,
            )
        )

    async def pull(self) -> None:
        group = self.random.choice([ORDERED, PLAIN])
        self._held += await self.broker.pull(
            QUEUE, group, worker=f"w{self.random.randint(1, 3)}", limit=self.random.randint(1, 4), lease=LEASE
        )

    async def settle(self) -> None:
        if not self._held:
            return
        delivery = self._held.pop(self.random.randrange(len(self._held)))
        ack_id = delivery.ack_id
        error = ProcessingError(message="no such user 7", timestamp=from_ms(self.clock.now_ms()))
        words: list[Settlement] = [
            Ack(ack_id, run_ms=self.random.randint(1, 500)),
            Ack(ack_id, run_ms=self.random.randint(1, 500)),
            Nack(ack_id, timedelta(seconds=self.random.randint(0, 5)), error, run_ms=3),
            GiveUp(ack_id, FailureKind.PERMANENT, error, run_ms=4),
            HandBack(ack_id),
        ]
        await self.broker.settle([self.random.choice(words)])

    async def wait(self) -> None:
        self.clock.advance(timedelta(milliseconds=self.random.randint(1, 8_000)))

    async def maintain(self) -> None:
        await self.broker.maintain()

    async def cancel(self) -> None:
        await self.broker.cancel(QUEUE, f"m{self.random.randint(1, self._number + 1)}")

    async def purge(self) -> None:
        await self.broker.purge(QUEUE, self.random.choice([ORDERED, PLAIN]))

    async def replay(self) -> None:
        letters = await self.broker.dead_letters.page(QUEUE, limit=2)
        if self.random.random() < 0.5:
            await self.broker.dead_letters.replay([letter.id for letter in letters])
        else:
            await self.broker.dead_letters.discard([letter.id for letter in letters])

    async def rows(self, after: int = 0) -> list[Row]:
        """Return the journal beyond a seq, times as Spark wants them."""
        found: list[Row] = []
        position: Position | None = None
        while chunks := await self.broker.journal.read(SHARD, position, limit=5_000):
            found += [row for chunk in chunks for row in rows_of(decode_chunk(chunk), SHARD)]
            position = Position(found[-1]["epoch"], found[-1]["seq"])
        return [row for row in timed(found) if row["seq"] > after]

    async def snapshot(self) -> Snapshot:
        return await self.broker.journal.snapshot(QUEUE)


def timed(rows: Iterable[Row]) -> Iterator[Row]:
    """Give rows with instants instead of milliseconds."""
    for row in rows:
        moments = {name: _instant(row[name]) for name in _TIMES if row.get(name) is not None}
        yield {**row, "event": str(row["event"]), **moments}


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC)


def journal(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    """Return rows as the table that the source gives."""
    names = journal_schema().names
    values = [tuple(_plain(row.get(name)) for name in names) for row in rows]
    return spark.createDataFrame(values, journal_schema())


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Raw | memoryview):
        return bytes(value)
    return value
