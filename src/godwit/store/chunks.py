"""Chunks of a kept journal: stored in two parts, put together with epoch and seq when they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from godwit.core.errors import JournalLost
from godwit.core.journal.chunks import VERSION
from godwit.core.journal.external_journal import JournalStep, KeptShard
from godwit.core.journal.shards import Position

_encode = msgspec.msgpack.Encoder().encode
_ARRAY_OF_TEN: Final = b"\x9a"


class StoredStep(NamedTuple):
    """A step as a row: `header` holds event, queue, group, worker and depth, one after the other."""

    n: int
    at_ms: int
    header: bytes
    rows: bytes


def packed(step: JournalStep) -> StoredStep:
    """Return a step as it is stored."""
    facts = (step.event, step.queue, step.group, step.worker, step.depth)
    return StoredStep(len(step.rows), step.at_ms, b"".join(map(_encode, facts)), _encode(step.rows))


def chunk(epoch: str, last_seq: int, n: int, at_ms: int, header: bytes, rows: bytes) -> bytes:
    """Return the chunk of a stored step, as `core.journal` decodes it."""
    numbers = (VERSION, epoch, last_seq - n + 1, at_ms)
    return b"".join((_ARRAY_OF_TEN, *map(_encode, numbers), header, rows))


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
        found.append(chunk(epoch, step["last_seq"], step["n"], step["at"], step["header"], step["rows"]))
    return found
