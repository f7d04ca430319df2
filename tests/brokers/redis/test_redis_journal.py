"""Reading a journal whose stored chunks are compact: one of them may be several when it is read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from godwit.brokers.contract import Ack
from godwit.brokers.redis import RedisBroker
from godwit.brokers.redis import journal as redis_journal
from godwit.brokers.redis.client.connection import Argument
from godwit.brokers.redis.client.script_runner import ScriptRunner
from godwit.brokers.redis.journal import RedisJournal
from godwit.brokers.redis.layout import keys
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.errors import JournalLost
from godwit.core.journal.chunks import Chunk, decode_chunk
from godwit.core.journal.shards import Position, shard_name
from godwit.core.journal.vocabulary import Event
from godwit.core.messages.envelope import Envelope
from godwit.core.names import DEFAULT_GROUP as GROUP
from godwit.core.names import QueueName, new_message_id
from godwit.core.queues import GroupSpec, QueueSpec
from tests.servers.redis import RedisServer, redis_server
from tests.waiting import eventually

if TYPE_CHECKING:
    from godwit.brokers.contract import Journal

QUEUE: Final = QueueName("q")
SHARD: Final = shard_name(QUEUE)
GROUPS: Final = ("a", "b", "c")
LEASE: Final = timedelta(seconds=30)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as one:
        yield one


async def some_life(broker: RedisBroker) -> None:
    """Leave compact chunks of arrivals and deliveries, of several rows and of one, and others between them."""
    await broker.declare(QueueSpec(name=QUEUE), [GroupSpec(name=group) for group in GROUPS])
    for count in (5, 1, 3):
        now_ms = SYSTEM_CLOCK.now_ms()
        await broker.publish([Envelope(new_message_id(), QUEUE, b"body", 4, now_ms) for _ in range(count)])
        got = await broker.pull(QUEUE, GROUPS[1], worker="w", limit=4, lease=LEASE)
        await broker.settle([Ack(one.ack_id) for one in got[:2]])


async def everything(journal: Journal) -> tuple[str, list[Chunk]]:
    ends = (await journal.shards())[SHARD]
    chunks = [decode_chunk(chunk) for chunk in await journal.read(SHARD, limit=1_000)]
    assert [one.first_seq for one in chunks] == [1, *(one.last_seq + 1 for one in chunks[:-1])]
    assert chunks[-1].last_seq == ends.last_seq
    return ends.epoch, chunks


async def test_every_position_and_limit_gives_the_same_chunks(server: RedisServer) -> None:
    server.flush()
    async with RedisBroker(server.url) as broker:
        await some_life(broker)
        epoch, chunks = await everything(broker.journal)
        with server.client() as client:
            stored = [chunk[b"c"][1] for _, chunk in client.xrange(keys.step(QUEUE)[1])]
        assert {1, 2, 3} == set(stored)
        assert len(stored) < len(chunks)
        last_seq = chunks[-1].last_seq
        for after in range(last_seq + 1):
            beyond = [one for one in chunks if one.last_seq > after]
            for limit in range(1, last_seq + 2):
                fitting = [one for one in beyond if one.last_seq - after <= limit]
                found = await broker.journal.read(SHARD, Position(epoch, after), limit=limit)
                assert [decode_chunk(one) for one in found] == (fitting or beyond[:1]), (after, limit)


@pytest.mark.parametrize("limit", range(1, 18))
async def test_reading_on_from_any_position_gives_every_row_once_and_in_order(server: RedisServer, limit: int) -> None:
    server.flush()
    async with RedisBroker(server.url) as broker:
        await some_life(broker)
        epoch, chunks = await everything(broker.journal)
        rows = [row for one in chunks for row in one.rows]
        for after in range(len(rows) + 1):
            place, found = after, []
            while read := await broker.journal.read(SHARD, Position(epoch, place), limit=limit):
                for chunk in map(decode_chunk, read):
                    assert chunk.first_seq <= place + 1 <= chunk.last_seq
                    found += chunk.rows[place + 1 - chunk.first_seq :]
                    place = chunk.last_seq
            assert found == rows[after:]


class Trimming(ScriptRunner):
    """A way to the server on which the journal is trimmed after the first page of every read."""

    def __init__(self, reach: ScriptRunner, server: RedisServer, keep_from: int) -> None:
        self.__dict__.update(reach.__dict__)
        self._pages, self._server, self._keep_from = 0, server, keep_from
        self.ask = self._ask_and_trim

    async def _ask_and_trim(self, *commands: Sequence[Argument]) -> list[Any]:
        replies = await self._servers.ask(*commands)
        if commands[0][0] == "XRANGE":
            self._pages += 1
            if self._pages == 1:
                with self._server.client() as client:
                    client.xtrim(keys.step(QUEUE)[1], minid=f"{self._keep_from}-0", approximate=False)
        return replies


async def test_a_trim_between_two_pages_is_told_and_never_passed_over(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.flush()
    monkeypatch.setattr(redis_journal, "_PAGE", 2)
    async with RedisBroker(server.url) as broker:
        await some_life(broker)
        epoch, chunks = await everything(broker.journal)
        journal = RedisJournal(Trimming(broker._reach, server, chunks[-1].last_seq), broker._catalog)
        found = [decode_chunk(one) for one in await journal.read(SHARD, limit=1_000)]
        assert found == chunks[: len(found)], "what was read ends before the gap"
        assert len(found) < len(chunks) - 1
        with pytest.raises(JournalLost) as lost:
            await journal.read(SHARD, Position(epoch, found[-1].last_seq), limit=1_000)
        assert f"row {found[-1].last_seq:,}" in str(lost.value)


async def test_a_pull_that_waits_on_the_server_names_the_version_of_its_application(server: RedisServer) -> None:
    server.flush()
    async with RedisBroker(server.url) as producer, server_side(server) as worker:
        await producer.declare(QueueSpec(name=QUEUE))
        pulling = asyncio.create_task(worker.pull(QUEUE, GROUP, worker="w", limit=1, lease=LEASE, wait=LEASE))
        with server.client() as client:
            await eventually(lambda: client.info("clients")["blocked_clients"] > 0)
        await producer.publish([Envelope(new_message_id(), QUEUE, b"body", 4, SYSTEM_CLOCK.now_ms())])
        assert len(await pulling) == 1
        _, chunks = await everything(producer.journal)
    (delivered,) = [chunk for chunk in chunks if chunk.event is Event.DELIVERED]
    assert (delivered.worker, delivered.app_version, delivered.actor) == ("w", "2.1", None)


def server_side(server: RedisServer) -> RedisBroker:
    """Return a broker of an application of version 2.1."""
    broker = RedisBroker(server.url)
    broker.app_version = "2.1"
    return broker
