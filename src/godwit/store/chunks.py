"""Chunks of a kept journal: stored in two parts, put together with epoch and seq when they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from godwit.core.errors import JournalLost
from godwit.core.journal.chunks import encode_parts, joined
from godwit.core.journal.external_journal import JournalStep, KeptShard
from godwit.core.journal.shards import Position


class StoredStep(NamedTuple):
    """A step as a row: its chunk without epoch, seq and time, in the two parts that `encode_parts` makes."""

    n: int
    at_ms: int
    header: bytes
    rows: bytes


def packed(step: JournalStep) -> StoredStep:
    """Return a step as it is stored."""
    header, rows = encode_parts(
        step.event, step.queue, step.group, step.worker, step.depth, step.rows, step.actor, step.app_version
    )
    return StoredStep(len(step.rows), step.at_ms, header, rows)


def start_of(shard: str, kept: KeptShard | None, after: Position | None) -> int:
    """Return the seq after which a reader goes on; raises `JournalLost` when that is not held."""
    if kept is None:
        raise JournalLost(shard, "anything", "nothing: nothing was ever written to it")
    if after is None:
        return kept.first_seq - 1
    if after.epoch != kept.epoch or not kept.first_seq - 1 <= after.seq <= kept.last_seq:
        asked = f"what follows row {after.seq:,} of epoch {after.epoch}"
        raise JournalLost(shard, asked, f"rows {kept.first_seq:,} to {kept.last_seq:,} of epoch {kept.epoch}")
    return after.seq


def cut(steps: Iterable[Mapping[str, Any]], epoch: str, seen: int, limit: int) -> list[bytes]:
    """Return the chunks of stored steps, up to `limit` rows beyond `seen` but at least one chunk."""
    found: list[bytes] = []
    rows = 0
    for step in steps:
        rows += step["last_seq"] - max(seen, step["last_seq"] - step["n"])
        if found and rows > limit:
            break
        found.append(joined(epoch, step["last_seq"] - step["n"] + 1, step["at"], step["header"], step["rows"]))
    return found
