"""The journal handed on to a store: everything, in order, and nothing twice after a crash in between."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from godwit.brokers.contract import Ack
from godwit.brokers.rabbitmq.journal import identity
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.journal.external_journal import JournalStep
from godwit.core.journal.shards import shard_name
from godwit.store.contract import Store
from godwit.store.urls import connect
from tests.brokers.rabbitmq import raw
from tests.conformance.harness import Harness, Q

SHARD = shard_name(Q)


async def kept(store: Store) -> list[dict[str, Any]]:
    """Return what the store's journal has of the queue."""
    return [row for data in await store.journal.read(SHARD) for row in rows_of(decode_chunk(data), SHARD)]


async def test_the_journal_reaches_the_store_and_goes_on_where_it_stopped(rabbit: Harness, tmp_path: Path) -> None:
    async with connect(f"sqlite:///{tmp_path / 'store.db'}") as store:
        raw.of(rabbit).keep_journal(store.journal)
        await rabbit.declare()
        await rabbit.publish("a", "b")
        await rabbit.broker.maintain()
        delivery = await rabbit.pull_one()
        await rabbit.broker.settle([Ack(delivery.ack_id)])
        await rabbit.broker.maintain()
        await rabbit.broker.maintain()
        assert [identity(row) for row in await kept(store)] == [identity(row) for row in await rabbit.rows()]
        assert [row["seq"] for row in await kept(store)] == list(range(1, 7))


class Forgetful:
    """A store whose confirmation is lost once: the rows are kept, the forwarder dies before it notes so."""

    def __init__(self, store: Store) -> None:
        self._journal = store.journal
        self.dies = True

    async def append(self, shard: str, steps: Sequence[JournalStep]) -> None:
        await self._journal.append(shard, steps)
        if self.dies:
            self.dies = False
            raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


async def test_rows_that_were_told_before_a_crash_are_not_told_again(rabbit: Harness, tmp_path: Path) -> None:
    async with connect(f"sqlite:///{tmp_path / 'store.db'}") as store:
        writer: Any = Forgetful(store)
        raw.of(rabbit).keep_journal(writer)
        await rabbit.declare()
        await rabbit.publish("a")
        with suppress(KeyboardInterrupt):
            await rabbit.broker.maintain()
        assert not writer.dies
        await rabbit.publish("b")
        await rabbit.restart()
        raw.of(rabbit).keep_journal(writer)
        await rabbit.broker.maintain()
        assert [identity(row) for row in await kept(store)] == [identity(row) for row in await rabbit.rows()]
