"""The contents of a batch on the driver: which rows of which journals it has, and what happened to whole groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from godwit.core.journal.vocabulary import Event
from godwit.core.queues import GroupSpec
from godwit.pipeline.audit.coverage import Created, RowRun
from godwit.pipeline.audit.drop_completed import FACTS, Place
from godwit.pipeline.audit.interruptions import GroupRemoval

_TOTALS = ("n", "first_seq", "last_seq", "seq_sum", "last_at_ms")


class BatchOverview:
    """A table of shards with lists of their runs, arrivals, created queues and groups, and removals."""

    def __init__(self, table: pa.Table) -> None:
        self._shards: list[dict[str, Any]] = table.to_pylist()

    @property
    def totals(self) -> pa.Table:
        """The rows of each run, as `rollup.advances` adds them up."""
        rows = [(shard, run) for shard in self._shards for run in shard["runs"]]
        texts = {name: pa.array([shard[name] for shard, _ in rows], pa.string()) for name in ("shard", "epoch")}
        return pa.table(texts | {name: pa.array([run[name] for _, run in rows], pa.int64()) for name in _TOTALS})

    @property
    def runs(self) -> Iterator[RowRun]:
        """The rows without a hole that each task read."""
        for shard in self._shards:
            arrivals: dict[int, dict[str, tuple[int, int]]] = {}
            for arrived in shard["arrived"]:
                in_run = arrivals.setdefault(arrived["run_seq"], {})
                low, high = in_run.get(arrived["group"], (arrived["lowest"], arrived["highest"]))
                in_run[arrived["group"]] = (min(low, arrived["lowest"]), max(high, arrived["highest"]))
            for run in shard["runs"]:
                facts = {name: run[name] for name in FACTS if name != "seq_sum"}
                found = arrivals.get(run["first_seq"], {})
                yield RowRun(shard=shard["shard"], epoch=shard["epoch"], arrivals=found, **facts)

    @property
    def arrived(self) -> Iterator[tuple[Place, int, bytes | None]]:
        """Which copies arrived: their group, the lowest number, and a bit for each from there on."""
        for shard in self._shards:
            for arrived in shard["arrived"]:
                yield (shard["shard"], shard["epoch"], arrived["group"]), arrived["lowest"], arrived["arrivals"]

    @property
    def created(self) -> list[Created]:
        """The queues and groups that were created."""
        return [
            Created(shard["shard"], shard["epoch"], one["seq"], one["group"], _keeps_order(one["event"], one["body"]))
            for shard in self._shards
            for one in shard["created"]
        ]

    @property
    def removals(self) -> list[GroupRemoval]:
        """The purges, and removals of groups and queues."""
        return [
            GroupRemoval(shard["shard"], shard["epoch"], one["seq"], one["group"], Event(one["event"]))
            for shard in self._shards
            for one in shard["removals"]
        ]


def _keeps_order(event: str, body: bytes | None) -> bool:
    is_group = event == Event.GROUP_CREATED.value
    return is_group and body is not None and msgspec.json.decode(bytes(body), type=GroupSpec).message_ordering
