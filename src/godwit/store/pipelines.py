"""What makes a pipeline's results count once: positions, staged numbers, the lake's manifest.

`publish` is the one transaction that counts. It compares where the batch begins with the position of its pipeline,
adds what was staged, lists the files of the lake and moves the position, all or nothing. A second publication of the
same rows raises and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from godwit.core.errors import ManifestMoved, PositionGap, PositionMoved, StagingLost
from godwit.core.journal.shards import Position

_DAY_MS: Final = 86_400_000
MINUTE_COLUMNS: Final = (
    "minute", "queue_name", "consumer_group", "messages_enqueued", "messages_processed", "messages_failed",
    "messages_retried", "messages_expired", "messages_delivered", "processing_time_sum_ms", "processing_time_count",
    "wait_time_sum_ms", "wait_time_count", "peak_queue_depth",
)  # fmt: skip
HISTOGRAM_COLUMNS: Final = ("minute", "queue_name", "consumer_group", "metric", "bucket", "n")

MinuteRow = tuple[int, str, str | None, int, int, int, int, int, int, int, int, int, int, int]
"""Values of `MINUTE_COLUMNS`; the minute in milliseconds since 1970."""
HistogramRow = tuple[int, str, str | None, str, int, int]
"""Values of `HISTOGRAM_COLUMNS`."""


class PipelineAdvance(msgspec.Struct, frozen=True, kw_only=True):
    """Rows `first` to `last` of a shard, all of them, `last` having happened at `at_ms`."""

    shard: str
    epoch: str
    first: int
    last: int
    at_ms: int


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """What was staged under a run's id; counted again before it is added."""

    run_id: str
    minutes: int
    histogram: int


class LakeFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a lake; `path` is relative to the lake's own folder, `day` (UTC) is written like 2030-01-31."""

    path: str
    dataset: str
    day: str
    rows: int
    bytes: int
    first_seq: int | None = None
    last_seq: int | None = None


class StoredVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict of an audit: its number, its text, and the hash of both together with the hash before."""

    number: int
    body: bytes
    hash: str


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one batch changes.

    `advances` and `states` are by pipeline; `lake` owns the files added and removed.
    """

    run_id: str
    advances: Mapping[str, Sequence[PipelineAdvance]] = {}
    staged: Staged | None = None
    lake: str = ""
    add: Sequence[LakeFile] = ()
    remove: Sequence[str] = ()
    states: Mapping[str, bytes] = {}
    accept_loss: bool = False


class PipelinePlace(msgspec.Struct, frozen=True, kw_only=True):
    """How far a pipeline has got in a shard; times in milliseconds since 1970."""

    pipeline: str
    shard: str
    epoch: str
    seq: int
    at_ms: int | None
    updated_at_ms: int


class DayNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """A queue's or a group's day (UTC, written like 2030-01-31); `consumer_group` is None for all groups together."""

    date: str
    queue_name: str
    consumer_group: str | None
    messages_enqueued: int
    messages_delivered: int
    messages_processed: int
    messages_failed: int
    messages_retried: int
    messages_expired: int
    average_processing_time_ms: int
    peak_queue_depth: int
    minutes_covered: int
    throughput_per_minute: float


class Pipelines(Protocol):
    """The state of pipelines."""

    async def positions(self, pipeline: str) -> Mapping[str, Position]:
        """Return how far a pipeline has got, by shard."""
        ...

    async def places(self) -> list[PipelinePlace]:
        """Return how far all pipelines have got."""
        ...

    async def begin(self, pipeline: str, places: Mapping[str, Position]) -> None:
        """Let a pipeline begin behind these places; shards whose position is known keep it."""
        ...

    async def stage(self, run_id: str, minutes: Sequence[MinuteRow], histogram: Sequence[HistogramRow]) -> Staged:
        """Keep numbers to be added by `publish`; what was staged under other ids more than a day ago is dropped."""
        ...

    async def publish(self, publication: Publication) -> None:
        """Change everything a batch changes, or nothing.

        Raises `PositionMoved` when another run has published these rows, `PositionGap` when rows between the
        position and the batch are missing, `StagingLost` when staged numbers are gone, and `ManifestMoved` when a
        file to be removed does not count.
        """
        ...

    async def days(self, *, since: str | None = None) -> list[DayNumbers]:
        """Return the analytics of all days, or of those from `since` on, by date, queue and group."""
        ...

    async def files(self, lake: str, dataset: str, *, days: Sequence[str] | None = None) -> list[LakeFile]:
        """Return the files that count, of some days or of all."""
        ...

    async def removed(self, lake: str, *, before_ms: int) -> list[str]:
        """Return the paths of files that stopped counting before an instant."""
        ...

    async def listed(self, lake: str) -> frozenset[str]:
        """Return the paths of all files in the manifest, also of those that stopped counting."""
        ...

    async def unlist(self, lake: str, paths: Sequence[str]) -> None:
        """Forget files that stopped counting and are deleted."""
        ...

    async def state(self, pipeline: str) -> bytes | None:
        """Return what a pipeline keeps besides its position: what its last publication said."""
        ...

    async def set_back(self, pipeline: str, shard: str, position: Position, former: str) -> bool:
        """Rename the epoch of a position to `former`: the broker lost those rows and goes on under the same epoch.

        False, and nothing is changed, when the pipeline is at another position.
        """
        ...

    async def attest(self, pipeline: str, verdict: StoredVerdict) -> bool:
        """Add a verdict; False, and nothing is changed, when there is one of its number."""
        ...

    async def last_verdict(self, pipeline: str) -> StoredVerdict | None:
        """Return the verdict with the highest number."""
        ...

    async def verdicts(self, pipeline: str, *, after: int = 0) -> list[StoredVerdict]:
        """Return the verdicts with numbers beyond `after`, in order."""
        ...

    async def forget(self, pipeline: str) -> int:
        """Forget a pipeline's position and state; return the number of shards it had. Verdicts stay."""
        ...


def check(
    pipeline: str, stored: Mapping[str, Position], advances: Iterable[PipelineAdvance], *, accept_loss: bool
) -> None:
    """Compare a batch with the position it goes on from."""
    for advance in advances:
        place = stored.get(advance.shard)
        if place is None:
            place = Position(advance.epoch, 0)  # a shard that was not there when the pipeline began
        if place.epoch == advance.epoch:
            if advance.first == place.seq + 1:
                continue
            if advance.first <= place.seq:
                raise PositionMoved(pipeline, advance.shard, advance.first, place.seq)
        if not accept_loss:
            raise PositionGap(pipeline, advance.shard, place.epoch, place.seq, advance.epoch, advance.first)


def check_staged(publication: Publication, minutes: int, histogram: int) -> None:
    """Refuse to add fewer or more numbers than were staged: they were swept, or staged twice."""
    staged = publication.staged
    if staged is not None and (staged.minutes, staged.histogram) != (minutes, histogram):
        raise StagingLost(staged.run_id, staged.minutes + staged.histogram, minutes + histogram)


def check_removed(publication: Publication, removed: int) -> None:
    """Refuse to replace files that do not count: another compaction was faster."""
    if removed != len(publication.remove):
        raise ManifestMoved(publication.lake, len(publication.remove), removed)


def oldest_wanted(run_id: str) -> str:
    """Return the id of a run a day before this one; what older runs staged is not wanted any more."""
    return f"{max(0, int(run_id.partition('-')[0], 16) - _DAY_MS):013x}"


def new_run_id(now_ms: int, token: str) -> str:
    """Return an id for one attempt at a batch; ids sort by time."""
    return f"{now_ms:013x}-{token}"
