"""Whether a broker already has a message that a scheduler may have published before it died.

Inside the queue's deduplication window publishing again is harmless. Later two places know: the store, which
knows what its recorder has read, and the journal, which knows the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from godwit.brokers.contract import Journal, ShardEnds
from godwit.core.errors import JournalLost
from godwit.core.journal.chunks import decode_chunk
from godwit.core.journal.lifecycle import ACCEPTANCES
from godwit.core.journal.shards import Position
from godwit.core.journal.vocabulary import LAYOUTS
from godwit.core.logs import get_logger
from godwit.core.names import MessageId, QueueName

Ask = Callable[[Sequence[MessageId]], Awaitable[set[MessageId]]]
"""Returns those messages that are known to have been accepted."""

_ROWS: Final = 10_000
_ID: Final = {event: LAYOUTS[event].index("message_id") for event in ACCEPTANCES}

log = get_logger(__name__)


class Statuses(Protocol):
    """Who knows where messages stand; a store's `messages` does."""

    async def status(self, message_id: MessageId) -> object | None:
        """Say where a message stands, None when it is not known."""
        ...


def accepted_by(statuses: Statuses) -> Ask:
    """Return what asks for the status of each message: one that has a status was accepted."""

    async def ask(ids: Sequence[MessageId]) -> set[MessageId]:
        return {one for one in ids if await statuses.status(one) is not None}

    return ask


class AcceptedMessages:
    """Asks for messages: first `ask`, when there is a store that can tell, then the journal of their queue."""

    def __init__(self, journal: Journal, *, ask: Ask | None = None) -> None:
        self._journal, self._ask = journal, ask

    async def known(self, queue: QueueName, ids: Sequence[MessageId]) -> set[MessageId]:
        """Return those messages of a queue that its broker has accepted, as far as store and journal know."""
        found = set() if self._ask is None else await self._ask(ids)
        left = set(ids) - found
        return found | (await self._in_journal(queue, left) if left else set())

    async def _in_journal(self, queue: QueueName, wanted: set[MessageId]) -> set[MessageId]:
        found: set[MessageId] = set()
        for shard, ends in (await self._journal.shards()).items():
            if shard.rpartition("#")[0] == queue:
                found |= await self._in_shard(shard, ends, wanted - found)
        return found

    async def _in_shard(self, shard: str, ends: ShardEnds, wanted: set[MessageId]) -> set[MessageId]:
        found: set[MessageId] = set()
        at = Position(ends.epoch, ends.first_seq - 1)
        while at.seq < ends.last_seq and found != wanted:
            try:
                chunks = await self._journal.read(shard, at, limit=_ROWS)
            except JournalLost:
                # Trimmed under our hands. What is gone is older than what is kept; read on from there.
                log.warning("journal trimmed while looking for published firings", shard=shard)
                kept = (await self._journal.shards()).get(shard)
                return found if kept is None else found | await self._in_shard(shard, kept, wanted - found)
            if not chunks:
                break
            for chunk in map(decode_chunk, chunks):
                if chunk.event in _ID:
                    column = _ID[chunk.event]
                    found |= wanted.intersection(row[column] for row in chunk.rows)
                at = Position(chunk.epoch, chunk.last_seq)
        return found
