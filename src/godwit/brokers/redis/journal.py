"""The journal port: streams of chunks, whose ids are the seq of their last row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from godwit.brokers.arguments import check_limit
from godwit.brokers.contract import ShardEnds, Snapshot
from godwit.brokers.redis import keys
from godwit.brokers.redis.catalog import Catalog
from godwit.brokers.redis.compact import first_seq, written_out
from godwit.brokers.redis.reach import Reach
from godwit.brokers.redis.survey import snapshot
from godwit.core.clock import milliseconds
from godwit.core.errors import JournalLost
from godwit.core.journal import Position, shard_name
from godwit.core.names import QueueName
from godwit.core.queues import QueueSpec

_PAGE: Final = 500
_decode_counters: Final = msgspec.msgpack.Decoder(list[int]).decode


class RedisJournal:
    """The journals of all queues of a server."""

    def __init__(self, reach: Reach, catalog: Catalog) -> None:
        self._reach, self._catalog = reach, catalog

    async def shards(self) -> Mapping[str, ShardEnds]:
        """Say what each shard holds."""
        names = await self._catalog.names()
        ends = await self._ends(*names)
        return {shard_name(name): one for name, one in zip(names, ends, strict=True) if one is not None}

    async def _ends(self, *queues: QueueName) -> list[ShardEnds | None]:
        """Say what the journals of queues hold: None where there never was a queue."""
        commands: list[tuple[str | int, ...]] = []
        for queue in queues:
            meta, journal = keys.step(queue)
            commands.append(("HMGET", meta, "epoch", "s", "jd"))
            commands.append(("XRANGE", journal, "-", "+", "COUNT", 1))
        replies = await self._reach.ask(*commands) if commands else []
        return [_ends(*replies[n : n + 2]) for n in range(0, len(replies), 2)]

    async def read(self, shard: str, after: Position | None = None, *, limit: int = 1_000) -> list[bytes]:
        """Return chunks with rows beyond `after`."""
        check_limit(limit)
        queue, _, partition = shard.partition("#")
        ends = (await self._ends(queue))[0] if partition == "0" else None
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
                if last == seen and first_seq(chunk) > seen + 1 and after is not None:
                    raise _lost(shard, (await self._ends(queue))[0] or ends, after)
                reached = int(entry.partition(b"-")[0])
                rows += reached - last
                if found and rows > limit:
                    return found
                found += written_out(chunk, seen)
                last = reached
            if len(page) < min(limit, _PAGE) or rows >= limit:
                return found

    async def trim(self) -> int:
        """Drop what need not be kept."""
        return await self.trim_all({one.name: one.spec for one in await self._catalog.all()})

    async def trim_all(self, specs: Mapping[QueueName, QueueSpec]) -> int:
        """Drop what journals need not keep; a removed queue's journal is kept by the default rules."""
        dropped = 0
        left = await self._catalog.names()
        while left:
            answers = await self._reach.run_each(
                "trim", [_trimming(specs.get(name) or QueueSpec(name=name)) for name in left]
            )
            dropped += sum(rows for rows, _ in answers)
            left = [name for name, (_, more) in zip(left, answers, strict=True) if more]
        return dropped

    async def commit(self, reader: str, shard: str, position: Position) -> None:
        """Register how far `reader` has got."""
        queue, _, partition = shard.partition("#")
        ends = (await self._ends(queue))[0] if partition == "0" else None
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


def _trimming(spec: QueueSpec) -> tuple[QueueName, tuple[str, ...], tuple[int, int]]:
    """Return queue, keys and arguments of `trim.lua`."""
    names = (*keys.step(spec.name), keys.part(spec.name, "readers"))
    return spec.name, names, (milliseconds(spec.journal_keep), spec.journal_max_bytes)


def _counters(stored: bytes | None) -> list[int]:
    """Return the counters of a queue as `_step.lua` keeps them."""
    return _decode_counters(b"\x9a" + stored) if stored else [0] * 10


def _ends(values: list[Any], first: list[Any]) -> ShardEnds | None:
    if values[0] is None:
        return None
    counters = _counters(values[1])
    last_seq = counters[0]
    return ShardEnds(
        epoch=values[0].decode(),
        first_seq=first_seq(first[0][1][1]) if first else last_seq + 1,
        last_seq=last_seq,
        bytes=counters[4],
        dropped=int(values[2] or 0),
    )


def _known(shard: str, ends: ShardEnds, after: Position) -> int:
    if after.epoch != ends.epoch or not ends.first_seq - 1 <= after.seq <= ends.last_seq:
        raise _lost(shard, ends, after)
    return after.seq


def _lost(shard: str, ends: ShardEnds, after: Position) -> JournalLost:
    asked = f"what follows row {after.seq:,} of epoch {after.epoch}"
    return JournalLost(shard, asked, f"rows {ends.first_seq:,} to {ends.last_seq:,} of epoch {ends.epoch}")
