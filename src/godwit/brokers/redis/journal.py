"""The journal port: streams of chunks, whose ids are the seq of their last row."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from godwit.brokers.arguments import check_limit, check_reader
from godwit.brokers.contract import ShardEnds, Snapshot
from godwit.brokers.redis.client.script_runner import ScriptRunner, answered
from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.layout.catalog import Catalog
from godwit.brokers.redis.layout.codec import packed
from godwit.brokers.redis.layout.compact_chunks import first_seq, written_out
from godwit.brokers.redis.layout.partitions import share
from godwit.brokers.redis.settle import Shard
from godwit.brokers.redis.stats import snapshot
from godwit.core.clock import milliseconds
from godwit.core.errors import JournalLost, StorageFull
from godwit.core.journal.shards import Position, shard_name, shard_parts
from godwit.core.journal.vocabulary import Event
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import QueueSpec

_PAGE: Final = 500
REMOVED_SECONDS: Final = 10.0
"""How long it is taken as known what the journals of removed queues hold."""
_decode_counters: Final = msgspec.msgpack.Decoder(list[int]).decode


class RedisJournal:
    """The journals of all queues of a server."""

    def __init__(self, reach: ScriptRunner, catalog: Catalog) -> None:
        self._reach, self._catalog = reach, catalog
        self._removed: dict[str, ShardEnds] = {}
        self._removed_names: list[QueueName] = []
        self._removed_until = 0.0

    async def shards(self) -> Mapping[str, ShardEnds]:
        """Say what each shard holds; of removed queues as it was a moment ago: nothing is added there."""
        declared, removed = await self._catalog.list.declared(), await self._catalog.list.removed()
        found = await self._ends_of(await self._shards_of(declared))
        now = time.monotonic()
        if now >= self._removed_until or removed != self._removed_names:
            self._removed = await self._ends_of(await self._shards_of(removed))
            self._removed_names, self._removed_until = removed, now + REMOVED_SECONDS
        return self._removed | found

    async def _ends_of(self, shards: Sequence[Shard]) -> dict[str, ShardEnds]:
        ends = await self._ends(*shards)
        return {shard_name(*shard): one for shard, one in zip(shards, ends, strict=True) if one is not None}

    async def _shards(self) -> list[Shard]:
        """Return every partition that has something stored."""
        return await self._shards_of(await self._catalog.names())

    async def _shards_of(self, names: Iterable[QueueName]) -> list[Shard]:
        """Return every partition that queues have or had."""
        names = list(names)
        asked = [("HGET", keys.part(name, "meta"), "parts") for name in names]
        counts = answered(await self._reach.ask_each(*asked))
        return [(names[n], at) for n, count in counts for at in range(int(count or 1))]

    async def _ends(self, *shards: Shard) -> list[ShardEnds | None]:
        """Say what the journals of partitions hold: None where there never was one."""
        commands: list[tuple[str | int, ...]] = []
        for shard in shards:
            meta, journal = keys.step(*shard)
            commands.append(("HMGET", meta, "epoch", "s", "jd"))
            commands.append(("XRANGE", journal, "-", "+", "COUNT", 1))
        replies = dict(answered(await self._reach.ask_each(*commands)))
        both = ((replies.get(n), replies.get(n + 1)) for n in range(0, len(commands), 2))
        return [None if first is None or second is None else _ends(first, second) for first, second in both]

    async def read(self, shard: str, after: Position | None = None, *, limit: int = 1_000) -> list[bytes]:
        """Return chunks with rows beyond `after`."""
        limit = check_limit(limit)
        place = shard_parts(shard)
        ends = (await self._ends(place))[0] if place is not None else None
        if ends is None or place is None:
            raise JournalLost(shard, "anything", "nothing: no queue of that name was ever declared")
        seen = ends.first_seq - 1 if after is None else _known(shard, ends, after)
        found: list[bytes] = []
        last = seen
        while True:
            (page,) = await self._reach.ask(
                ("XRANGE", keys.step(*place)[1], f"{last + 1}-0", "+", "COUNT", min(limit, _PAGE))
            )
            for entry, (_, chunk) in page:
                if first_seq(chunk) > last + 1 and found:
                    return found  # trimmed between two pages: a reader that goes on from here gets an error
                if first_seq(chunk) > last + 1 and after is not None:
                    raise _lost(shard, (await self._ends(place))[0] or ends, after)
                # The limit is for what is given: a stored chunk may be several of the journal's.
                for reached, one in written_out(chunk, seen, int(entry.partition(b"-")[0])):
                    if found and reached - seen > limit:
                        return found
                    found.append(one)
                    last = reached
            if len(page) < min(limit, _PAGE) or last - seen >= limit:
                return found

    async def note_hold(
        self, event: Event, queue: QueueName, group: GroupName | None, *, hold: bytes | None, actor: str | None
    ) -> None:
        """Write down that a queue or a group was paused, is draining or was resumed."""
        known = await self._catalog.ask(queue)
        if group is not None:
            known.group(group)
        arguments = (event.value, group or "", packed(hold), actor or "")
        if not await self._reach.run("note_hold", queue, keys.step(queue), arguments):
            (await self._catalog.ask(queue)).group(group or "")  # removed meanwhile

    async def trim(self) -> int:
        """Drop what need not be kept."""
        specs = {one.name: one.spec for one in await self._catalog.all()}
        return await self._trim(await self._shards(), specs)

    async def trim_all(self, specs: Mapping[QueueName, QueueSpec]) -> int:
        """Drop what journals need not keep; that of removed queues now and then, by the default rules."""
        dropped = await self._trim(await self._shards_of(specs), specs)
        for name in await self._catalog.list.due():
            dropped += await self._trim_removed(name, specs)
        with suppress(StorageFull):  # a full server has that done later
            await self._catalog.set_removed_aside()
        return dropped

    async def _trim_removed(self, name: QueueName, specs: Mapping[QueueName, QueueSpec]) -> int:
        """Trim the journal of a removed queue; one that has no row left is listed no more, and keeps its counters."""
        shards = [] if name in specs else await self._shards_of([name])
        dropped = await self._trim(shards, {})
        kept = await self._reach.ask(*(("XLEN", keys.step(*shard)[1]) for shard in shards)) if shards else []
        if any(kept):
            with suppress(StorageFull):
                await self._catalog.list.look_later(name)
        else:
            await self._trim(shards, {})  # now that no row is left the journal itself goes
            await self._catalog.list.forget(name)
        return dropped

    async def _trim(self, shards: Sequence[Shard], specs: Mapping[QueueName, QueueSpec]) -> int:
        dropped = 0
        left = list(shards)
        while left:
            found = answered(
                await self._reach.run_each(
                    "trim", [_trimming(specs.get(name) or QueueSpec(name=name), partition) for name, partition in left]
                )
            )
            dropped += sum(rows for _, (rows, _) in found)
            left = [left[n] for n, (_, more) in found if more]
        return dropped

    async def commit(self, reader: str, shard: str, position: Position) -> None:
        """Register how far `reader` has got."""
        check_reader(reader, position)
        place = shard_parts(shard)
        found: bytes | int = b""
        if place is not None:
            names = (keys.step(*place)[0], keys.part(place[0], "readers", place[1]))
            found = await self._reach.run("commit", place[0], names, (position.epoch, reader, position.seq))
        if found != 1:
            raise JournalLost(shard, f"epoch {position.epoch}", "another journal" if found else "nothing")

    async def committed(self, reader: str) -> Mapping[str, Position]:
        """Return how far `reader` has got."""
        check_reader(reader)
        shards = await self._shards()
        commands: list[tuple[str, ...]] = []
        for name, at in shards:
            commands.append(("HGET", keys.part(name, "meta", at), "epoch"))
            commands.append(("HGET", keys.part(name, "readers", at), reader))
        replies: list[Any] = await self._reach.ask(*commands) if commands else []
        return {
            shard_name(*shard): Position(replies[2 * n].decode(), int(replies[2 * n + 1]))
            for n, shard in enumerate(shards)
            if replies[2 * n + 1] is not None
        }

    async def forget(self, reader: str) -> None:
        """Release a reader's hold."""
        check_reader(reader)
        for name, at in await self._shards():
            await self._reach.ask(("HDEL", keys.part(name, "readers", at), reader))

    async def snapshot(self, queue: QueueName) -> Snapshot:
        """List the copies of a queue's shard and the position that lists them all; a queue's name means its first."""
        name, partition = shard_parts(queue) or (queue, 0)
        return await snapshot(self._reach, await self._catalog.ask(name), partition)


def _trimming(spec: QueueSpec, partition: int) -> tuple[QueueName, tuple[str, ...], tuple[int, int]]:
    """Return queue, keys and arguments of `trim.lua`."""
    names = (*keys.step(spec.name, partition), keys.part(spec.name, "readers", partition))
    return spec.name, names, (milliseconds(spec.journal_keep), share(spec.journal_max_bytes, spec.partitions))


def _counters(stored: bytes | None) -> list[int]:
    """Return the counters of a queue as `_step.lua` keeps them."""
    return _decode_counters(b"\x9b" + stored) if stored else [0] * 11


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
