"""Journals that the broker set back: it lost its last rows, or is a restored backup, and goes on under the same epoch.

The numbers alone do not show it once as many rows are written again: the last row that was read is compared by its
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final

from godwit.brokers.contract import Journal, ShardEnds
from godwit.core.errors import JournalLost
from godwit.core.journal.chunks import decode_chunk
from godwit.core.journal.shards import Position
from godwit.core.limits import bounded_ms
from godwit.core.logs import get_logger
from godwit.pipeline.audit.coverage import former_epoch
from godwit.pipeline.spark.connections import Connections
from godwit.store.pipelines import PipelinePlace

log = get_logger(__name__)
ASKED_AT_ONCE: Final = 200


def restart_after_set_back(
    connections: Connections, pipeline: str, shards: Mapping[str, ShardEnds], *, accept_loss: bool
) -> None:
    """Let a pipeline read journals that were set back from their beginning; without `accept_loss` raise instead."""
    places = [place for place in connections.pipelines(lambda state: state.places()) if place.pipeline == pipeline]
    for place in connections.broker(lambda broker: _set_back(broker.journal, places, shards)):
        ends = shards[place.shard]
        if not accept_loss:
            held = f"other rows, {ends.first_seq:,} to {ends.last_seq:,} of the same epoch: the broker was set back"
            raise JournalLost(place.shard, f"row {place.seq:,} of epoch {place.epoch} as it was read", held)
        log.warning("the broker set a journal back", shard=place.shard, seq=place.seq, last=ends.last_seq)
        position, former = Position(place.epoch, place.seq), former_epoch(place.epoch, place.at_ms or 0)
        _rename(connections, pipeline, place.shard, position, former)


def _rename(connections: Connections, pipeline: str, shard: str, position: Position, former: str) -> None:
    connections.pipelines(lambda state: state.set_back(pipeline, shard, position, former))


async def _set_back(
    journal: Journal, places: Sequence[PipelinePlace], shards: Mapping[str, ShardEnds]
) -> list[PipelinePlace]:
    known = [place for place in places if place.shard in shards and place.epoch == shards[place.shard].epoch]
    found = []
    for start in range(0, len(known), ASKED_AT_ONCE):
        some = known[start : start + ASKED_AT_ONCE]
        answers: list[Awaitable[bool]] = [_is_another(journal, place, shards[place.shard]) for place in some]
        found += [place for place, is_another in zip(some, await asyncio.gather(*answers), strict=True) if is_another]
    return found


async def _is_another(journal: Journal, place: PipelinePlace, ends: ShardEnds) -> bool:
    if place.seq > ends.last_seq:
        return True
    if place.at_ms is None or place.seq < ends.first_seq:
        return False
    try:
        chunks = await journal.read(place.shard, Position(place.epoch, place.seq - 1), limit=1)
    except JournalLost:
        return False  # trimmed meanwhile
    return bool(chunks) and bounded_ms(decode_chunk(chunks[0]).at) != bounded_ms(place.at_ms)
