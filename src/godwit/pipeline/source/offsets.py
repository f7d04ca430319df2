"""Offsets of shards: where a read begins and ends, and which rows between are lost.

An offset, as Spark keeps it, is `{shard: {"epoch": ..., "seq": ...}}`; everything up to and including `seq` has been
read. A shard that an offset does not name has not been read at all and begins with its first row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from godwit.brokers.contract import Journal, ShardEnds
from godwit.core.clock import to_ms
from godwit.core.errors import JournalLost, QueueNotFound
from godwit.core.journal.chunks import decode_chunk
from godwit.core.journal.shards import Position
from godwit.core.logs import get_logger
from godwit.pipeline.source.options import COMMITTED, EARLIEST, LATEST, Offsets, ReadOptions
from godwit.pipeline.spark.cores import cores

log = get_logger(__name__)
MOST_ROWS: Final = 1 << 18
LEAST_ROWS: Final = 50_000
RANGE_ROWS: Final = 100
"""Asking the broker for a range costs as much as reading this many rows."""
COMMITS_AT_ONCE: Final = 200
Positions = dict[str, Position]
"""Positions by shard."""


class RowRange(msgspec.Struct, frozen=True):
    """Rows of one shard: those beyond `after`, up to and including `until`."""

    shard: str
    epoch: str
    after: int
    until: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.until - self.after


def queue_of(shard: str) -> str:
    """Return the queue of a shard."""
    return shard.rpartition("#")[0]


async def chosen_shards(journal: Journal, options: ReadOptions) -> Mapping[str, ShardEnds]:
    """Return the shards of the chosen queues with what they hold; refuse a queue that never existed."""
    shards = await journal.shards()
    known = {queue_of(shard) for shard in shards}
    for queue in options.queues:
        if queue not in known:
            raise QueueNotFound(queue, tuple(sorted(known)))
    return {name: ends for name, ends in shards.items() if not options.queues or queue_of(name) in options.queues}


async def resolve_offsets(journal: Journal, asked: Offsets, options: ReadOptions) -> Positions:
    """Return the positions that `asked` means now."""
    shards = await chosen_shards(journal, options)
    match asked:
        case dict():
            return {shard: position for shard, position in asked.items() if shard in shards or not options.queues}
        case datetime():
            return {shard: await _position_before(journal, shard, ends, to_ms(asked)) for shard, ends in shards.items()}
        case _ if asked == EARLIEST:
            return {shard: Position(ends.epoch, ends.first_seq - 1) for shard, ends in shards.items()}
        case _ if asked == LATEST:
            return {shard: Position(ends.epoch, ends.last_seq) for shard, ends in shards.items()}
        case _ if asked == COMMITTED and options.reader is not None:
            committed = await journal.committed(options.reader)
            return {
                shard: committed.get(shard, Position(ends.epoch, ends.first_seq - 1)) for shard, ends in shards.items()
            }
    raise AssertionError(asked)  # options are checked


async def _position_before(journal: Journal, shard: str, ends: ShardEnds, at_ms: int) -> Position:
    """Return the position right before the first row at or after an instant; times never decrease within a shard."""
    low, high = ends.first_seq - 1, ends.last_seq
    while low < high:
        middle = (low + high) // 2
        chunk = decode_chunk((await journal.read(shard, Position(ends.epoch, middle), limit=1))[0])
        if chunk.at >= at_ms:
            high = max(low, min(middle, chunk.first_seq - 1))
        else:
            low = chunk.last_seq
    return Position(ends.epoch, low)


def check_available(positions: Positions, shards: Mapping[str, ShardEnds], names: Iterable[str], *, fail: bool) -> None:
    """Raise or, without `fail`, log the rows of `names` that the journals no longer hold after `positions`."""
    for shard in sorted(names):
        lost = lost_rows(shard, positions.get(shard), shards[shard]) if shard in shards else None
        if lost is None:
            continue
        if fail:
            raise lost
        log.warning("journal rows were lost", shard=shard, rows=lost.rows, asked=lost.asked, held=lost.held)


def lost_rows(shard: str, position: Position | None, ends: ShardEnds) -> JournalLost | None:
    """Return the rows of a shard that a reader at `position` has lost, or None."""
    if position is None:
        position = Position(ends.epoch, 0)
    if position.epoch == ends.epoch and ends.first_seq - 1 <= position.seq <= ends.last_seq:
        return None
    held = f"rows {ends.first_seq:,} to {ends.last_seq:,} of epoch {ends.epoch}"
    # How many rows an earlier journal of this name had is unknown.
    rows = ends.first_seq - 1 - position.seq if position.epoch == ends.epoch and position.seq < ends.first_seq else None
    return JournalLost(shard, f"what follows row {position.seq:,} of epoch {position.epoch}", held, rows)


async def acknowledge(journal: Journal, reader: str, positions: Positions) -> None:
    """Tell the broker how far a reader has got; it keeps the rows after that.

    A shard that the broker no longer lists has no rows to keep.
    """
    shards, known = await journal.shards(), await journal.committed(reader)
    moved = [
        (shard, position)
        for shard, position in positions.items()
        if shard in shards and shards[shard].epoch == position.epoch and known.get(shard) != position
    ]
    for start in range(0, len(moved), COMMITS_AT_ONCE):
        step = moved[start : start + COMMITS_AT_ONCE]
        await asyncio.gather(*(journal.commit(reader, shard, position) for shard, position in step))


def ranges(start: Positions, end: Positions, shards: Mapping[str, ShardEnds]) -> Iterator[RowRange]:
    """Yield the rows between two offsets that the journals still hold."""
    for shard, until in sorted(end.items()):
        ends = shards.get(shard)
        if ends is None or ends.epoch != until.epoch:
            continue
        position = start.get(shard)
        after = position.seq if position is not None and position.epoch == until.epoch else 0
        unread = RowRange(shard, until.epoch, max(after, ends.first_seq - 1), min(until.seq, ends.last_seq))
        if unread.rows > 0:
            yield unread


def task_ranges(
    unread: Iterable[RowRange], rows: int | None, *, at_once: int | None = None
) -> list[tuple[RowRange, ...]]:
    """Return the ranges of each task: at most `rows` rows, or sized so that few tasks keep all cores busy.

    A task reads the ranges of many shards, because a task of Spark costs far more than a range.
    """
    wholes = list(unread)
    # A task asks for its first range anyway.
    most = rows or rows_per_task(sum(map(_cost, wholes)) - RANGE_ROWS, at_once or cores())
    tasks: dict[int, list[RowRange]] = {}
    read = -RANGE_ROWS
    for part in (part for whole in wholes for part in split(whole, most)):
        middle = max(0, 2 * read + _cost(part)) // 2
        tasks.setdefault(middle // most, []).append(part)
        read += _cost(part)
    return list(map(tuple, tasks.values()))


def _cost(whole: RowRange) -> int:
    """Return what reading a range costs, in rows."""
    return whole.rows + RANGE_ROWS


def rows_per_task(rows: int, at_once: int) -> int:
    """Return how many of `rows` a task should read.

    A task of Spark costs as much as reading 10,000 rows before it has read one, so tasks are large; but every core
    should have one, and none should wait long for the last of the others.
    """
    tasks = max(-(-rows // MOST_ROWS), min(at_once, -(-rows // LEAST_ROWS)), 1)
    if tasks > at_once:
        tasks = -(-tasks // at_once) * at_once
    return max(-(-rows // tasks), 1)


def split(whole: RowRange, rows: int) -> Iterator[RowRange]:
    """Yield a range in equal parts of at most `rows` rows, so that several tasks share a busy shard."""
    parts = -(-whole.rows // rows)
    for part in range(parts):
        after = whole.after + whole.rows * part // parts
        until = whole.after + whole.rows * (part + 1) // parts
        yield RowRange(whole.shard, whole.epoch, after, until)


def to_offset(positions: Positions) -> dict[str, Any]:
    """Return positions as Spark keeps them; sorted, because Spark compares offsets as text."""
    return {shard: {"epoch": position.epoch, "seq": position.seq} for shard, position in sorted(positions.items())}


def from_offset(offset: Mapping[str, Any]) -> Positions:
    """Return the positions of an offset."""
    return {shard: Position(entry["epoch"], int(entry["seq"])) for shard, entry in offset.items()}


def to_option(positions: Positions) -> str:
    """Return positions as the text of the options `startingOffsets` and `endingOffsets`."""
    return msgspec.json.encode(to_offset(positions)).decode()
