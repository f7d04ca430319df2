"""Which messages a batch has sent, kept in the broker until the next batch begins.

The broker's own deduplication forgets after its window; a batch may be tried again after any outage. Before a block is
sent its ids are written down, afterwards that it was sent; in between they are *unsure*. Whoever tries the batch again
leaves out what was sent, and looks up in the journal which of the unsure ones arrived: nothing is guessed.

    sink/<name>/<batch>/<block>        [ids, journal positions before the block was sent]
    sink/<name>/<batch>/<block>/sent   (empty)

Every task looks through all that its batch has sent so far: rows may be in another task when a batch is tried again. So
ids that are UUIDs take 16 bytes each, come in pages, and are looked through without making objects of them.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from godwit.brokers.contract import Broker
from godwit.core.errors import JournalLost
from godwit.core.journal import Event, Position, decode_chunk
from godwit.core.logs import get_logger

KEPT_FOR: Final = timedelta(days=7)
READ_ROWS: Final = 10_000
PAGE: Final = 200
"""How many values are looked through at once: at most 3 MB."""
_ARRIVALS: Final = (Event.ENQUEUED, Event.SCHEDULED, Event.DUPLICATE, Event.DROPPED)
log = get_logger(__name__)


class SentBlock(msgspec.Struct, frozen=True, array_like=True):
    """Messages sent together: ids that are all UUIDs one behind the other, others as they are."""

    ids: bytes | list[str]
    before: dict[str, Position]


class UnsureBlock(NamedTuple):
    """Ids of a task that a block had, and where journals were before it was sent."""

    ids: list[str]
    before: dict[str, Position]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SentBlock).decode
_DASHES: Final = (8, 13, 18, 23)
_WIDTH: Final = 36
_SENT: Final = "/sent"


def pack_ids(ids: Sequence[str]) -> bytes | list[str]:
    """Return ids as they are kept: 16 bytes for each when all of them are UUIDs as Python writes them."""
    whole, count = "".join(ids), len(ids)
    digits = whole.replace("-", "")
    if set(map(len, ids)) != {_WIDTH} or any(whole[place::_WIDTH] != "-" * count for place in _DASHES):
        return list(ids)
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        return list(ids)
    return raw if raw.hex() == digits and len(digits) == count * (_WIDTH - len(_DASHES)) else list(ids)


def unpack_ids(kept: bytes | list[str]) -> list[str]:
    """Return ids that were packed."""
    if isinstance(kept, list):
        return kept
    from godwit.pipeline.sink import uuid_text

    return uuid_text.strings(uuid_text.texts(kept))


class WantedIds:
    """The ids of a task, to be found among those that were sent."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = ids

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self._ids)

    @cached_property
    def _sieve(self) -> Callable[[bytes], bytes]:
        from godwit.pipeline.sink import uuid_text

        packed = pack_ids(self._ids)
        return uuid_text.UuidFilter(packed).pass_on if isinstance(packed, bytes) else bytes

    def among(self, kept: bytes | list[str]) -> list[str]:
        """Return those of a block's ids that are wanted."""
        left = self._sieve(kept) if isinstance(kept, bytes) else kept
        return [one for one in unpack_ids(left) if one in self._known] if left else []


def prefix_of(sink: str, batch: str = "") -> str:
    """Return where the blocks of a batch are kept, or those of all batches."""
    begun = f"sink/{quote(sink, safe='')}/"  # a name may have a slash
    return f"{begun}{batch}/" if batch else begun


class SinkLog:
    """What one batch has sent so far, by this task and by those before it."""

    def __init__(self, broker: Broker, sink: str, batch: str) -> None:
        self._broker, self._prefix = broker, prefix_of(sink, batch)

    async def already(self, ids: Sequence[str]) -> Collection[str]:
        """Return which of these ids were sent, unsure ones looked up."""
        sent, unsure, wanted = set[str](), list[UnsureBlock](), WantedIds(ids)
        async for block, was_sent in self._blocks():
            found = wanted.among(block.ids)
            if found and was_sent:
                sent.update(found)
            elif found:
                unsure.append(UnsureBlock(found, block.before))
        return sent | await self._arrived(unsure) if unsure else sent

    async def _blocks(self) -> AsyncIterator[tuple[SentBlock, bool]]:
        """Give what was written down, page by page, each block with whether it is known to be sent."""
        last, block = "", None
        while page := await self._broker.shared.scan(self._prefix, after=last, limit=PAGE):
            for key, entry in page.items():  # a block and, when it was sent, that it was
                if block is not None:
                    yield block, key == last + _SENT
                last, block = key, None if key.endswith(_SENT) else _decode(entry.value)
        if block is not None:
            yield block, False

    async def begin(self, ids: Sequence[str]) -> str:
        """Write down the ids of a block, unsure from now on; return its key."""
        shards = await self._broker.journal.shards()
        before = {shard: Position(ends.epoch, ends.last_seq) for shard, ends in shards.items()}
        key = f"{self._prefix}{secrets.token_hex(8)}"
        await self._broker.shared.put(key, _encode(SentBlock(pack_ids(ids), before)), expected=None, ttl=KEPT_FOR)
        return key

    async def finish(self, key: str) -> None:
        """Write down that a block was sent."""
        await self._broker.shared.put(key + _SENT, b"", expected=None, ttl=KEPT_FOR)

    async def _arrived(self, unsure: Sequence[UnsureBlock]) -> set[str]:
        """Return which unsure ids the journal knows."""
        wanted = {id_ for block in unsure for id_ in block.ids}
        found: set[str] = set()
        for shard in await self._broker.journal.shards():
            places = [block.before[shard] for block in unsure if shard in block.before]
            found |= await self._look(shard, min(places) if places else None, wanted)
        return found

    async def _look(self, shard: str, place: Position | None, wanted: Collection[str]) -> set[str]:
        found: set[str] = set()
        try:
            while chunks := await self._broker.journal.read(shard, place, limit=READ_ROWS):
                for chunk in map(decode_chunk, chunks):
                    place = Position(chunk.epoch, chunk.last_seq)
                    if chunk.event in _ARRIVALS:
                        found.update(row[0] for row in chunk.rows if row[0] in wanted)
        except JournalLost as lost:
            log.warning("unsure messages cannot be looked up", shard=shard, reason=lost.fact)
        return found


async def drop_earlier_batches(broker: Broker, sink: str, batch: str) -> None:
    """Drop what earlier batches sent: the next one has begun."""
    await broker.shared.clear(prefix_of(sink), prefix_of(sink, batch))


def batch_name(number: int) -> str:
    """Return a batch's number so that names sort like numbers."""
    return f"{number:012d}"
