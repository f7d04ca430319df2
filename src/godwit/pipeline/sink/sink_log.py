"""The log of messages that a batch has sent, kept in the broker until the next batch begins.

The broker's own deduplication forgets after its window; a batch may be tried again after any outage. The ids of a block
are logged before it is sent, and that it was sent is logged afterwards; in between they are *unsure*. A retry of the
batch leaves out the ids that were sent, and looks up in the journal which of the unsure ones arrived: nothing is
guessed.

    sink/<name>/<batch>/<block>        [ids, journal positions before the block was sent]
    sink/<name>/<batch>/<block>/sent   (empty)

Every task searches everything its batch has sent so far, because rows may be in another task when a batch is tried
again. Therefore ids that are UUIDs take 16 bytes each, come in pages, and are searched without an object per id.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from godwit.brokers.contract import Upkeep
from godwit.core.errors import JournalLost
from godwit.core.journal.chunks import decode_chunk
from godwit.core.journal.lifecycle import PUBLISH_EVENTS
from godwit.core.journal.shards import Position
from godwit.core.logs import get_logger
from godwit.core.shared_keys import sink_blocks

KEPT_FOR: Final = timedelta(days=7)
READ_ROWS: Final = 10_000
PAGE: Final = 200
"""How many values are read at once: at most 3 MB."""
log = get_logger(__name__)


class SentBlock(msgspec.Struct, frozen=True, array_like=True):
    """Messages sent together: the concatenated bytes of ids that are all UUIDs, other ids as texts."""

    ids: bytes | list[str]
    before: dict[str, Position]


class UnsureBlock(NamedTuple):
    """Ids of a task that were in an unsure block, and the positions of journals before it was sent."""

    ids: list[str]
    before: dict[str, Position]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SentBlock).decode
_DASHES: Final = (8, 13, 18, 23)
_WIDTH: Final = 36
_SENT: Final = "/sent"


def pack_ids(ids: Sequence[str]) -> bytes | list[str]:
    """Return ids as they are kept: 16 bytes each when all are UUIDs as Python writes them."""
    whole, count = "".join(ids), len(ids)
    digits = whole.replace("-", "")
    if set(map(len, ids)) != {_WIDTH} or any(whole[dash::_WIDTH] != "-" * count for dash in _DASHES):
        return list(ids)
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        return list(ids)
    return raw if raw.hex() == digits and len(digits) == count * (_WIDTH - len(_DASHES)) else list(ids)


def unpack_ids(kept: bytes | list[str]) -> list[str]:
    """Return the ids that `pack_ids` packed."""
    if isinstance(kept, list):
        return kept
    from godwit.pipeline.sink import uuid_text

    return uuid_text.as_strings(uuid_text.uuid_texts(kept))


class WantedIds:
    """The ids of a task, to be searched among those that were sent."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = ids

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self._ids)

    @cached_property
    def _filter(self) -> Callable[[bytes], bytes]:
        from godwit.pipeline.sink import uuid_text

        packed = pack_ids(self._ids)
        return uuid_text.UuidFilter(packed).possible if isinstance(packed, bytes) else bytes

    def among(self, kept: bytes | list[str]) -> list[str]:
        """Return the ids of a block that are wanted."""
        left = self._filter(kept) if isinstance(kept, bytes) else kept
        return [id_ for id_ in unpack_ids(left) if id_ in self._known] if left else []


class SinkLog:
    """The log of one batch, written by this task and by those before it."""

    def __init__(self, broker: Upkeep, sink: str, batch: str) -> None:
        self._broker, self._prefix = broker, sink_blocks(sink, batch)

    async def sent_among(self, ids: Sequence[str]) -> Collection[str]:
        """Return which of these ids were sent; look up unsure ones in the journal."""
        sent, unsure, wanted = set[str](), list[UnsureBlock](), WantedIds(ids)
        async for block, was_sent in self._blocks():
            ids_in_block = wanted.among(block.ids)
            if ids_in_block and was_sent:
                sent.update(ids_in_block)
            elif ids_in_block:
                unsure.append(UnsureBlock(ids_in_block, block.before))
        return sent | await self._arrived(unsure) if unsure else sent

    async def _blocks(self) -> AsyncIterator[tuple[SentBlock, bool]]:
        """Yield the logged blocks, page by page, each with whether it is known to be sent."""
        last, block = "", None
        while page := await self._broker.shared.scan(self._prefix, after=last, limit=PAGE):
            for key, entry in page.items():  # a block and, when it was sent, that it was
                if block is not None:
                    yield block, key == last + _SENT
                last, block = key, None if key.endswith(_SENT) else _decode(entry.value)
        if block is not None:
            yield block, False

    async def begin(self, ids: Sequence[str]) -> str:
        """Log the ids of a block, which are unsure from now on; return its key."""
        shards = await self._broker.journal.shards()
        before = {shard: Position(ends.epoch, ends.last_seq) for shard, ends in shards.items()}
        key = f"{self._prefix}{secrets.token_hex(8)}"
        await self._broker.shared.put(key, _encode(SentBlock(pack_ids(ids), before)), expected=None, ttl=KEPT_FOR)
        return key

    async def finish(self, key: str) -> None:
        """Log that a block was sent."""
        await self._broker.shared.put(key + _SENT, b"", expected=None, ttl=KEPT_FOR)

    async def _arrived(self, unsure: Sequence[UnsureBlock]) -> set[str]:
        """Return which unsure ids are in the journal."""
        wanted = {id_ for block in unsure for id_ in block.ids}
        arrived: set[str] = set()
        for shard in await self._broker.journal.shards():
            positions = [block.before[shard] for block in unsure if shard in block.before]
            arrived |= await self._look(shard, min(positions) if positions else None, wanted)
        return arrived

    async def _look(self, shard: str, position: Position | None, wanted: Collection[str]) -> set[str]:
        arrived: set[str] = set()
        try:
            while chunks := await self._broker.journal.read(shard, position, limit=READ_ROWS):
                for chunk in map(decode_chunk, chunks):
                    position = Position(chunk.epoch, chunk.last_seq)
                    if chunk.event in PUBLISH_EVENTS:
                        arrived.update(row[0] for row in chunk.rows if row[0] in wanted)
        except JournalLost as lost:
            log.warning("unsure messages cannot be looked up", shard=shard, reason=lost.fact)
        return arrived


async def drop_earlier_batches(broker: Upkeep, sink: str, batch: str) -> None:
    """Drop the log of earlier batches; the next one has begun."""
    await broker.shared.clear(sink_blocks(sink), sink_blocks(sink, batch))


def batch_name(number: int) -> str:
    """Return a batch's number as text that sorts like the number."""
    return f"{number:012d}"
