"""A life in steps that goes through every transaction a broker knows; `python -m tests.faults.scenario FOLDER` runs it.

Nothing in it depends on time, so that after `n` steps every broker is in the same state. Each step is written down when
it has returned.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from godwit.brokers.contract import Ack, Broker, GiveUp, HandBack, Nack, Settlement
from godwit.core.failures.failure import FailureKind
from godwit.core.journal.chunks import decode_chunk
from godwit.core.journal.shards import Position, shard_name
from godwit.core.journal.vocabulary import Event
from godwit.core.messages.envelope import Envelope
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from tests.conformance.harness import LONG, G, Q
from tests.faults.publisher import BODY
from tests.faults.reconciliation import DATABASE
from tests.faults.record import Record
from tests.waiting import eventually, real_time

MAIL: Final = GroupName("mail")
DEAD: Final = QueueName("dead")
MANY: Final = 1_000
"""More than a broker carries out on the event loop's own thread, where no answer can come too late."""
STEPS_FILE: Final = "steps"
BACKUP_FILE: Final = "backup.db"
CHECKPOINT_PAUSE: Final = timedelta(seconds=1.1)
"""Longer than the broker waits between two checkpoints."""


class Life:
    """One broker and what its steps leave to each other."""

    def __init__(
        self, broker: Broker, place: Path | None, changed: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self.broker = broker
        self.place = place
        self.held: list[Any] = []
        self.changed = changed
        """Called between the parts of a step that is more than one transaction."""

    async def declare(self) -> None:
        groups = [GroupSpec(name=G, message_ordering=True), GroupSpec(name=MAIL)]
        await self.broker.declare(QueueSpec(name=Q, dead_letter_queue=DEAD), groups)

    async def publish(self) -> None:
        await self.broker.publish([message(number) for number in range(150)])

    async def publish_again_with_news(self) -> None:
        await self.broker.publish([message(number) for number in range(140, 160)])

    async def pull(self) -> None:
        self.held = await self.broker.pull(Q, G, worker="one", limit=9, lease=LONG)

    async def settle(self) -> None:
        a, b, c, d, e, *_ = (delivery.ack_id for delivery in self.held)
        words: list[Settlement] = [Ack(a), Nack(b, LONG), Nack(c), GiveUp(d, FailureKind.PERMANENT), HandBack(e)]
        assert await self.broker.settle(words) == []

    async def extend(self) -> None:
        await self.broker.extend([self.held[5].ack_id], LONG)

    async def give_up_more(self) -> None:
        words = [GiveUp(delivery.ack_id, FailureKind.POISON) for delivery in self.held[6:9]]
        assert await self.broker.settle(words) == []

    async def cancel(self) -> None:
        assert await self.broker.cancel(Q, MessageId("m0100"))

    async def replay(self) -> None:
        letter, *_ = await self.broker.dead_letters.page(Q)
        assert await self.broker.dead_letters.replay([letter.id]) == []

    async def discard(self) -> None:
        letter, *_ = await self.broker.dead_letters.page(Q)
        assert await self.broker.dead_letters.discard([letter.id]) == []

    async def declare_dead(self) -> None:
        await self.broker.declare(QueueSpec(name=DEAD))

    async def maintain(self) -> None:
        assert await self.broker.maintain() > 0  # feeds the dead letter queue

    async def lose_a_pull(self) -> None:
        """Let a pull be carried out for a caller that is gone when its answer comes."""
        if self.place is None:  # a broker whose pull has no moment in which it could be lost
            lost = await self.broker.pull(Q, MAIL, worker="gone", limit=MANY, lease=LONG)
            assert self.changed is not None
            await self.changed()
            await self.broker.settle([HandBack(one.ack_id) for one in lost])
            return
        pull = asyncio.create_task(self.broker.pull(Q, MAIL, worker="gone", limit=MANY, lease=LONG))
        await asyncio.sleep(0)
        time.sleep(0.1)  # noqa: ASYNC251 (the loop must not see the answer before the pull is cancelled)
        pull.cancel()
        with suppress(asyncio.CancelledError):
            await pull

        async def handed_back() -> bool:
            return (await self.broker.stats())[0].groups[1].leased == 0

        await eventually(handed_back, within=timedelta(seconds=3), what="handing back")

    async def commit(self) -> None:
        shard = shard_name(Q)
        chunk = decode_chunk((await self.broker.journal.read(shard))[0])
        await self.broker.journal.commit("reader", shard, Position(chunk.epoch, 1))

    async def trim(self) -> None:
        await self.broker.journal.trim()

    async def forget(self) -> None:
        await self.broker.journal.forget("reader")

    async def put(self) -> None:
        await self.broker.shared.put("key", b"value", expected=None)

    async def delete(self) -> None:
        await self.broker.shared.delete("key")

    async def clear(self) -> None:
        await self.broker.shared.clear("k", "l")

    async def note_a_pause(self) -> None:
        await self.broker.note_hold(Event.PAUSED, Q, hold=b"{}", actor="ops")

    async def purge(self) -> None:
        assert await self.broker.purge(Q, MAIL) > 0

    async def back_up(self) -> None:
        if self.place is not None:
            from godwit.brokers.sqlite.backup import backup

            await asyncio.to_thread(backup, self.place / DATABASE, self.place / BACKUP_FILE)

    async def publish_late(self) -> None:
        if self.place is not None:
            await real_time(CHECKPOINT_PAUSE)
        await self.broker.publish([message(number) for number in range(200, 205)])

    async def remove(self) -> None:
        await self.broker.remove(Q, MAIL)

    def steps(self) -> list[Callable[[], Awaitable[None]]]:
        """Return all steps in order."""
        return [
            self.declare, self.publish, self.publish_again_with_news, self.pull, self.settle, self.extend,
            self.give_up_more, self.cancel, self.replay, self.discard, self.declare_dead, self.maintain,
            self.lose_a_pull, self.commit, self.trim, self.forget, self.put, self.delete, self.put, self.clear,
            self.note_a_pause, self.purge, self.back_up, self.remove, self.publish_late,
        ]  # fmt: skip


def message(number: int) -> Envelope:
    """Return a message that is the same in every run."""
    key = f"k{number % 10}" if number % 2 else None
    return Envelope(MessageId(f"m{number:04}"), Q, BODY, len(BODY), 1_750_000_000_000, ordering_key=key)


async def state(broker: Broker) -> dict[str, Any]:
    """Return what a broker holds and has gone through, without times and tokens."""
    events: Counter[str] = Counter()
    for shard in await broker.journal.shards():
        after: Position | None = None
        while chunks := [decode_chunk(chunk) for chunk in await broker.journal.read(shard, after)]:
            for chunk in chunks:
                events[f"{chunk.event} {shard} {chunk.group}"] += len(chunk.rows)
            after = Position(chunks[-1].epoch, chunks[-1].last_seq)
    value = await broker.shared.get("key")
    return {"events": events, "stats": await broker.stats(), "shared": value.value if value else None}


async def live(place: Path) -> None:
    """Live it on a SQLite file."""
    from godwit.brokers.sqlite import SqliteBroker

    record = Record(place / STEPS_FILE)
    async with SqliteBroker(place / DATABASE) as broker:
        life = Life(broker, place)
        for step in life.steps():
            await step()
            record.write((step.__name__,))


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1])))
