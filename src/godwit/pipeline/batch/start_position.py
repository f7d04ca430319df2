"""Where a pipeline goes on: behind the slowest of its parts; new shards from the first row their journal holds."""

from __future__ import annotations

from collections.abc import Sequence

from godwit.core.journal import Position
from godwit.pipeline.batch.parts import BatchPart
from godwit.pipeline.source.offsets import Positions, chosen_shards
from godwit.pipeline.source.options import ReadOptions
from godwit.pipeline.spark.connections import Connections
from godwit.store.pipelines import Pipelines


def start_positions(connections: Connections, parts: Sequence[BatchPart], options: ReadOptions) -> Positions:
    """Return the places the next batch follows on; a part that begins now has its position written down first.

    A pipeline that lost its position could otherwise not be told from one that never had any.
    """
    shards = connections.broker(lambda broker: chosen_shards(broker.journal, options))
    earliest = {shard: Position(ends.epoch, ends.first_seq - 1) for shard, ends in shards.items()}
    places: Positions = {}
    for part in parts:
        for shard, place in begin_position(connections, part.key, earliest).items():
            if shard in shards:
                held = place.epoch == shards[shard].epoch
                places[shard] = min(places.get(shard, place), place) if held else place
    return places


def begin_position(connections: Connections, key: str, earliest: Positions) -> Positions:
    """Return a part's position, which is at the earliest rows where it had none."""

    async def begin(state: Pipelines) -> Positions:
        await state.begin(key, earliest)
        return dict(await state.positions(key))

    return connections.pipelines(begin)
