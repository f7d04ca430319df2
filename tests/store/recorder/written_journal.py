"""A journal that a test writes by hand: as an older broker or another program may have left it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from godwit.brokers.contract import ShardEnds, Snapshot
from godwit.core.errors import BrokerUnavailable
from godwit.core.journal.chunks import decode_chunk, encode_chunk
from godwit.core.journal.shards import Position
from godwit.core.journal.vocabulary import Event

NOON_MS = 1_780_315_200_000


def arrival(message_id: str, seq: int, **changes: Any) -> list[Any]:
    """Return the row of a message that arrived."""
    fields: dict[str, Any] = {
        "message_id": message_id, "publish_seq": seq, "copy": 1, "copies": 1, "type": "order", "priority": 50,
        "lane": 1, "ordering_key": None, "ready_at": NOON_MS, "deliver_at": None, "expires_at": None, "size": 2,
        "schedule_id": None, "campaign": None, "replay_of": None, "body": b'{"payload":1}',
    }  # fmt: skip
    assert changes.keys() <= fields.keys()
    return list((fields | changes).values())


class WrittenJournal:
    """Shards of chunks; what is in `broken` cannot be read, what is in `uncommittable` not committed."""

    def __init__(self) -> None:
        self.chunks: dict[str, list[bytes]] = {}
        self._ends: dict[str, int] = {}
        self.broken: dict[str, Exception] = {}
        self.uncommittable: dict[str, Exception] = {}
        self.commits: dict[str, Position] = {}

    def write(self, shard: str, event: Event, rows: list[Any], *, at: int = NOON_MS, group: str | None = "g") -> None:
        """Add a chunk."""
        first = self._ends.get(shard, 0) + 1
        queue = shard.partition("#")[0]
        self.add(shard, encode_chunk("e1", first, at, event, queue, group, "w", None, rows), len(rows))

    def add(self, shard: str, chunk: bytes, rows: int) -> None:
        """Add a chunk as it is."""
        self.chunks.setdefault(shard, []).append(chunk)
        self._ends[shard] = self._ends.get(shard, 0) + rows

    async def shards(self) -> Mapping[str, ShardEnds]:
        return {
            shard: ShardEnds(epoch="e1", first_seq=1, last_seq=last, bytes=1, dropped=0)
            for shard, last in self._ends.items()
        }

    async def read(self, shard: str, after: Position | None = None, *, limit: int = 1_000) -> list[bytes]:
        if shard in self.broken:
            raise self.broken[shard]
        return [chunk for chunk in self.chunks[shard] if after is None or not _is_before(chunk, after)]

    async def commit(self, reader: str, shard: str, position: Position) -> None:
        if shard in self.uncommittable:
            raise self.uncommittable[shard]
        self.commits[shard] = position

    async def snapshot(self, queue: str) -> Snapshot:
        """Say that nothing is there."""
        return Snapshot(position=Position("e1", self._ends[f"{queue}#0"]), copies=())

    async def trim(self) -> int:
        raise NotImplementedError

    async def committed(self, reader: str) -> Mapping[str, Position]:
        raise NotImplementedError

    async def forget(self, reader: str) -> None:
        raise NotImplementedError


def _is_before(chunk: bytes, after: Position) -> bool:
    try:
        return decode_chunk(chunk).last_seq <= after.seq
    except Exception:
        return False


AWAY = BrokerUnavailable("redis://one-master", "it is away", "Wait.")
