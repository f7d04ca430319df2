"""The position a pipeline continues at: that of its slowest part; new shards begin with their first row."""

from __future__ import annotations

from collections.abc import Sequence

from godwit.core.journal.shards import Position
from godwit.pipeline.batch.parts import BatchPart
from godwit.pipeline.source.offsets import Positions, chosen_shards
from godwit.pipeline.source.options import ReadOptions
from godwit.pipeline.spark.connections import Connections
from godwit.store.pipelines import Pipelines


def start_positions(connections: Connections, parts: Sequence[BatchPart], options: ReadOptions) -> Positions:
    """Return the positions the next batch follows; the position of a part that begins now is stored first.

    Otherwise a pipeline that lost its position would look like a new one.
    """
    shards = connections.broker(lambda broker: chosen_shards(broker.journal, options))
    earliest = {shard: Position(ends.epoch, ends.first_seq - 1) for shard, ends in shards.items()}
    positions: Positions = {}
    for part in parts:
        for shard, position in begin_position(connections, part.key, earliest).items():
            if shard in shards:
                held = position.epoch == shards[shard].epoch
                positions[shard] = min(positions.get(shard, position), position) if held else position
    return positions


def begin_position(connections: Connections, key: str, earliest: Positions) -> Positions:
    """Return a part's position; a part without one begins at the earliest rows."""

    async def begin(state: Pipelines) -> Positions:
        await state.begin(key, earliest)
        return dict(await state.positions(key))

    return connections.pipelines(begin)
