"""Which messages a batch has sent, kept in the broker until the next batch begins.

The broker's own deduplication forgets after its window; a batch may be tried again after any outage. Before a block is
sent its ids are written down as *unsure*, afterwards as *sent*. Whoever tries the batch again leaves out what was
sent, and looks up in the journal which of the unsure ones arrived: nothing is guessed.

    sink/<name>/<batch>/<block>   [state, ids, journal positions before the block was sent]
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from godwit.brokers.contract import Broker
from godwit.core.errors import JournalLost
from godwit.core.journal import Event, Position, decode_chunk
from godwit.core.logs import get_logger

KEPT_FOR: Final = timedelta(days=7)
READ_ROWS: Final = 10_000
_ARRIVALS: Final = (Event.ENQUEUED, Event.SCHEDULED, Event.DUPLICATE, Event.DROPPED)
log = get_logger(__name__)


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Messages sent together: `sent` is False until the broker has confirmed them."""

    sent: bool
    ids: list[str]
    before: dict[str, Position]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Block).decode


def prefix_of(sink: str, batch: str = "") -> str:
    """Return where the blocks of a batch are kept, or those of all batches."""
    return f"sink/{sink}/{batch}/" if batch else f"sink/{sink}/"


class Sent:
    """What one batch has sent so far, by this task and by those before it."""

    def __init__(self, broker: Broker, sink: str, batch: str) -> None:
        self._broker, self._prefix = broker, prefix_of(sink, batch)

    async def already(self) -> Collection[str]:
        """Return the ids that were sent, unsure ones looked up."""
        blocks = [_decode(entry.value) for entry in (await self._broker.shared.scan(self._prefix)).values()]
        sent = {id_ for block in blocks if block.sent for id_ in block.ids}
        unsure = [block for block in blocks if not block.sent]
        return sent | await self._arrived(unsure) if unsure else sent

    async def begin(self, ids: Sequence[str]) -> str:
        """Write a block down as unsure; return its key."""
        shards = await self._broker.journal.shards()
        before = {shard: Position(ends.epoch, ends.last_seq) for shard, ends in shards.items()}
        key = f"{self._prefix}{secrets.token_hex(8)}"
        block = Block(sent=False, ids=list(ids), before=before)
        await self._broker.shared.put(key, _encode(block), expected=None, ttl=KEPT_FOR)
        return key

    async def finish(self, key: str, ids: Sequence[str]) -> None:
        """Write a block down as sent."""
        entry = await self._broker.shared.get(key)
        version = entry.version if entry is not None else None
        block = Block(sent=True, ids=list(ids), before={})
        await self._broker.shared.put(key, _encode(block), expected=version, ttl=KEPT_FOR)

    async def _arrived(self, unsure: Sequence[Block]) -> set[str]:
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


async def forget_before(broker: Broker, sink: str, batch: str) -> None:
    """Drop what earlier batches sent: the next one has begun."""
    for key in await broker.shared.scan(prefix_of(sink)):
        if key.removeprefix(prefix_of(sink)).partition("/")[0] < batch:
            await broker.shared.delete(key)


def batch_name(number: int) -> str:
    """Return a batch's number so that names sort like numbers."""
    return f"{number:012d}"
