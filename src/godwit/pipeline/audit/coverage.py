"""What an audit covers: of each journal the rows that were followed, the gaps between them, and what cannot be known.

Pure functions; the coverage is stored with the position of the audit, in the transaction that publishes a batch.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from godwit.brokers.contract import PUBLISH_CHUNK
from godwit.core.journal.vocabulary import Event
from godwit.pipeline.audit.interruptions import Gap, GroupRemoval, Shard

_MOST_SPANS: Final = 100
"""Later spans of numbers that cannot be known are joined with the one before."""


class Unseen(msgspec.Struct, frozen=True, array_like=True):
    """Numbers of copies that may have arrived in rows that are missing: those between `after` and `before`."""

    after: int
    before: int | None


class GroupCoverage(msgspec.Struct, frozen=True, array_like=True):
    """Whether a group keeps order (None: not known), the highest number that arrived, and numbers that may have."""

    ordered: bool | None = None
    newest: int = 0
    unseen: tuple[Unseen, ...] = ()


class ShardCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one journal that were followed.

    `removed` says that its queue was removed last; times are in milliseconds since 1970.
    """

    shard: str
    epoch: str
    first_seq: int
    last_seq: int
    first_at_ms: int
    last_at_ms: int
    rows: int = 0
    copies: int = 0
    removed: bool = False
    gaps: tuple[tuple[int, int], ...] = ()
    groups: Mapping[str, GroupCoverage] = {}

    @property
    def missing(self) -> tuple[tuple[int, int], ...]:
        """The rows that were not followed: those before the first one, and the gaps."""
        return (((1, self.first_seq - 1),) if self.first_seq > 1 else ()) + self.gaps


class Coverage(msgspec.Struct, frozen=True):
    """The coverage of every journal."""

    shards: tuple[ShardCoverage, ...] = ()

    def by_shard(self) -> dict[Shard, ShardCoverage]:
        """Return it by shard and epoch."""
        return {(one.shard, one.epoch): one for one in self.shards}

    def renamed(self, epochs: Mapping[Shard, str]) -> Coverage:
        """Return it with other names for the epochs of some shards."""
        return Coverage(
            tuple(
                msgspec.structs.replace(one, epoch=epochs.get((one.shard, one.epoch), one.epoch)) for one in self.shards
            )
        )


class RowRun(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a journal without a hole that one task read."""

    shard: str
    epoch: str
    n: int
    first_seq: int
    last_seq: int
    first_at_ms: int
    last_at_ms: int
    births: int
    arrivals: Mapping[str, tuple[int, int]] = {}
    """The lowest and highest number of the copies that arrived, by group."""


class Created(msgspec.Struct, frozen=True):
    """A group, or (None) a queue, that was created, and whether the group keeps order."""

    shard: str
    epoch: str
    seq: int
    group: str | None
    ordered: bool


T = TypeVar("T", Created, GroupRemoval)


def coverage_bytes(coverage: Coverage) -> bytes:
    """Return a coverage as it is stored."""
    return zlib.compress(msgspec.msgpack.encode(coverage), 1)


def coverage_of(stored: bytes | None) -> Coverage:
    """Return a stored coverage; an empty one when there is none."""
    return Coverage() if stored is None else msgspec.msgpack.decode(zlib.decompress(stored), type=Coverage)


def former_epoch(epoch: str, at_ms: int) -> str:
    """Return the name of a journal's past, up to its row of an instant, that the broker lost under the same epoch."""
    return f"{epoch}~{at_ms}"


def is_former(name: str, epoch: str) -> bool:
    """Say whether a name is that of the past of a journal called `epoch`."""
    return name.startswith(f"{epoch}~")


def extended(
    known: Coverage, runs: Iterable[RowRun], created: Iterable[Created], removals: Iterable[GroupRemoval]
) -> tuple[Coverage, list[Gap]]:
    """Return the coverage after a batch, and the gaps before and between its rows."""
    shards = known.by_shard()
    read: dict[Shard, list[RowRun]] = {}
    for run in runs:
        read.setdefault((run.shard, run.epoch), []).append(run)
    births = _by_shard(created)
    ends = _by_shard(one for one in removals if one.event is Event.QUEUE_REMOVED)
    gaps: list[Gap] = []
    for shard, mine in read.items():
        covered, missing = _shard_after(shards.get(shard), sorted(mine, key=_first), births.get(shard, ()))
        newest = max((one.seq for one in births.get(shard, ()) if one.group is None), default=0)
        last_end = max((one.seq for one in ends.get(shard, ())), default=0)
        if newest or last_end:
            covered = msgspec.structs.replace(covered, removed=last_end > newest)
        shards[shard] = covered
        gaps += (Gap(*shard, first, last) for first, last in missing)
    return Coverage(tuple(shards[shard] for shard in sorted(shards))), gaps


def unseen_numbers(coverage: Coverage) -> Iterator[tuple[str, str, str | None, list[tuple[int, int | None]]]]:
    """Yield the numbers that may have arrived unseen, by group, and by `None` for groups that nothing is known of."""
    for one in coverage.shards:
        if one.missing:
            yield one.shard, one.epoch, None, []
        for name, group in one.groups.items():
            if one.missing:
                yield one.shard, one.epoch, name, [(span.after, span.before) for span in group.unseen]


def _shard_after(
    known: ShardCoverage | None, runs: Sequence[RowRun], created: Iterable[Created]
) -> tuple[ShardCoverage, list[tuple[int, int]]]:
    first, last = runs[0], max(runs, key=lambda run: run.last_seq)
    groups = dict(known.groups) if known is not None else {}
    reached, beginning = (known.last_seq, known.first_seq) if known is not None else (first.first_seq - 1, None)
    gaps: list[tuple[int, int]] = []
    new = sorted(created, key=lambda one: one.seq)
    for run in runs:
        if run.first_seq > reached + 1:
            gaps.append((reached + 1, run.first_seq - 1))
            groups = {name: _interrupted(group) for name, group in groups.items()}
        reached = max(reached, run.last_seq)
        unknown = (beginning or first.first_seq) > 1 or bool(gaps) or (known is not None and bool(known.gaps))
        fresh = GroupCoverage(unseen=(Unseen(0, None),)) if unknown else GroupCoverage()
        for one in new:
            if one.group is not None and run.first_seq <= one.seq <= run.last_seq:
                groups[one.group] = msgspec.structs.replace(groups.get(one.group, fresh), ordered=one.ordered)
        for name, (lowest, highest) in run.arrivals.items():
            groups[name] = _arrived(groups.get(name, fresh), lowest, highest)
    rows, copies = sum(run.n for run in runs), sum(run.births for run in runs)
    covered = ShardCoverage(
        shard=first.shard,
        epoch=first.epoch,
        first_seq=beginning if beginning is not None else first.first_seq,
        last_seq=reached,
        first_at_ms=known.first_at_ms if known is not None else first.first_at_ms,
        last_at_ms=last.last_at_ms,
        rows=rows + (known.rows if known is not None else 0),
        copies=copies + (known.copies if known is not None else 0),
        removed=known.removed if known is not None else False,
        gaps=(*(known.gaps if known is not None else ()), *gaps),
        groups=groups,
    )
    return covered, gaps


def _interrupted(group: GroupCoverage) -> GroupCoverage:
    """Return a group's coverage behind a gap: copies with higher numbers than those seen may have arrived in it."""
    if group.unseen and group.unseen[-1].before is None:
        return group
    spans = (*group.unseen, Unseen(group.newest - PUBLISH_CHUNK, None))
    if len(spans) > _MOST_SPANS:
        spans = (Unseen(spans[0].after, spans[1].before), *spans[2:])
    return msgspec.structs.replace(group, unseen=spans)


def _arrived(group: GroupCoverage, lowest: int, highest: int) -> GroupCoverage:
    """Return a group's coverage after copies arrived: those of later publishes have higher numbers.

    Those of one publish are in the journal event by event, so a gap may begin or end between neighbours.
    """
    unseen = group.unseen
    if unseen and unseen[-1].before is None:
        unseen = (*unseen[:-1], Unseen(unseen[-1].after, lowest + PUBLISH_CHUNK))
    return GroupCoverage(group.ordered, max(group.newest, highest), unseen)


def _first(run: RowRun) -> int:
    return run.first_seq


def _by_shard(found: Iterable[T]) -> dict[Shard, list[T]]:
    shards: dict[Shard, list[T]] = {}
    for one in found:
        shards.setdefault((one.shard, one.epoch), []).append(one)
    return shards
