"""The journal port: streams of chunks, whose ids are the seq of their last row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from godwit.brokers.arguments import check_limit
from godwit.brokers.contract import ShardEnds, Snapshot
from godwit.brokers.redis import keys
from godwit.brokers.redis.catalog import Catalog
from godwit.brokers.redis.reach import Reach
from godwit.brokers.redis.survey import snapshot
from godwit.core.clock import milliseconds
from godwit.core.errors import JournalLost
from godwit.core.journal import Position, decode_chunk, shard_name
from godwit.core.names import QueueName
from godwit.core.queues import QueueSpec

_PAGE: Final = 500


class RedisJournal:
    """The journals of all queues of a server."""

    def __init__(self, reach: Reach, catalog: Catalog) -> None:
        self._reach, self._catalog = reach, catalog

    async def shards(self) -> Mapping[str, ShardEnds]:
        """Say what each shard holds."""
        found = {}
        for name in await self._catalog.names():
            if (ends := await self._ends(name)) is not None:
                found[shard_name(name)] = ends
        return found

    async def _ends(self, queue: QueueName) -> ShardEnds | None:
        meta, journal = keys.step(queue)
        values, first = await self._reach.ask(
            ("HMGET", meta, "epoch", "seq", "jb", "jd"), ("XRANGE", journal, "-", "+", "COUNT", 1)
        )
        if values[0] is None:
            return None
        last_seq = int(values[1] or 0)
        return ShardEnds(
            epoch=values[0].decode(),
            first_seq=decode_chunk(first[0][1][1]).first_seq if first else last_seq + 1,
            last_seq=last_seq,
            bytes=int(values[2] or 0),
            dropped=int(values[3] or 0),
        )

    async def read(self, shard: str, after: Position | None = None, *, limit: int = 1_000) -> list[bytes]:
        """Return chunks with rows beyond `after`."""
        check_limit(limit)
        queue, _, partition = shard.partition("#")
        ends = await self._ends(queue) if partition == "0" else None
        if ends is None:
            raise JournalLost(shard, "anything", "nothing: no queue of that name was ever declared")
        seen = ends.first_seq - 1 if after is None else _known(shard, ends, after)
        found: list[bytes] = []
        rows, last = 0, seen
        while True:
            (page,) = await self._reach.ask(
                ("XRANGE", keys.step(queue)[1], f"{last + 1}-0", "+", "COUNT", min(limit, _PAGE))
            )
            for entry, (_, chunk) in page:
                if last == seen and decode_chunk(chunk).first_seq > seen + 1 and after is not None:
                    raise _lost(shard, await self._ends(queue) or ends, after)
                reached = int(entry.partition(b"-")[0])
                rows += reached - last
                if found and rows > limit:
                    return found
                found.append(chunk)
                last = reached
            if len(page) < min(limit, _PAGE) or rows >= limit:
                return found

    async def trim(self) -> int:
        """Drop what need not be kept; a removed queue's journal is kept by the default rules."""
        specs = {one.name: one.spec for one in await self._catalog.all()}
        dropped = 0
        for name in await self._catalog.names():
            dropped += await self.trim_one(specs.get(name) or QueueSpec(name=name))
        return dropped

    async def trim_one(self, spec: QueueSpec) -> int:
        """Drop what one queue's journal need not keep."""
        names = (*keys.step(spec.name), keys.part(spec.name, "readers"))
        arguments = (milliseconds(spec.journal_keep), spec.journal_max_bytes)
        dropped = 0
        while True:
            rows: int
            rows, more = await self._reach.run("trim", spec.name, names, arguments)
            dropped += rows
            if not more:
                return dropped

    async def commit(self, reader: str, shard: str, position: Position) -> None:
        """Register how far `reader` has got."""
        queue, _, partition = shard.partition("#")
        ends = await self._ends(queue) if partition == "0" else None
        if ends is None or ends.epoch != position.epoch:
            raise JournalLost(shard, f"epoch {position.epoch}", "another journal" if ends else "nothing")
        await self._reach.ask(("HSET", keys.part(queue, "readers"), reader, position.seq))

    async def committed(self, reader: str) -> Mapping[str, Position]:
        """Return how far `reader` has got."""
        found: dict[str, Position] = {}
        for name in await self._catalog.names():
            replies: list[Any] = await self._reach.ask(
                ("HGET", keys.part(name, "meta"), "epoch"), ("HGET", keys.part(name, "readers"), reader)
            )
            if replies[1] is not None:
                found[shard_name(name)] = Position(replies[0].decode(), int(replies[1]))
        return found

    async def forget(self, reader: str) -> None:
        """Release a reader's hold."""
        for name in await self._catalog.names():
            await self._reach.ask(("HDEL", keys.part(name, "readers"), reader))

    async def snapshot(self, queue: QueueName) -> Snapshot:
        """List a queue's copies and the position that lists them all."""
        return await snapshot(self._reach, await self._catalog.ask(queue))


def _known(shard: str, ends: ShardEnds, after: Position) -> int:
    if after.epoch != ends.epoch or not ends.first_seq - 1 <= after.seq <= ends.last_seq:
        raise _lost(shard, ends, after)
    return after.seq


def _lost(shard: str, ends: ShardEnds, after: Position) -> JournalLost:
    asked = f"what follows row {after.seq:,} of epoch {after.epoch}"
    return JournalLost(shard, asked, f"rows {ends.first_seq:,} to {ends.last_seq:,} of epoch {ends.epoch}")
