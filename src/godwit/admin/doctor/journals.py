"""How many hours the journals of a broker hold at the present rate, and whether a reader lost rows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec

from godwit.admin.doctor.findings import Finding, note, ok, warning
from godwit.admin.doctor.units import rate_in_words, size
from godwit.brokers.contract import Journal, ShardEnds
from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.journal.chunks import decode_chunk
from godwit.core.journal.shards import Position, shard_name
from godwit.core.names import QueueName
from godwit.core.queues import QueueSpec

CHECK: Final = "journal"
_DEFAULT: Final = QueueSpec(name=QueueName("default"))
_HOUR: Final = 3600.0


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """How a shard grows: watched for a moment, or on average since its first row when nothing came in that moment."""

    bytes_per_second: float
    watched: bool


async def examine_journals(
    journal: Journal, specs: Mapping[str, QueueSpec], *, span: timedelta, clock: Clock = SYSTEM_CLOCK
) -> list[Finding]:
    """Watch all shards for `span` and judge each; `specs` are the queues as declared."""
    before = await journal.shards()
    if not before:
        return [ok(CHECK, "empty")]
    await asyncio.sleep(span.total_seconds())
    after = await journal.shards()
    by_shard = {shard_name(name, at): spec for name, spec in specs.items() for at in range(spec.partitions)}
    found = []
    for shard, ends in sorted(after.items()):
        growth = _watched(before.get(shard), ends, span) or await _average(journal, shard, ends, clock)
        found.append(judge(shard, ends, growth, by_shard.get(shard, _DEFAULT)))
    return found


def judge(shard: str, ends: ShardEnds, growth: Growth | None, spec: QueueSpec) -> Finding:
    """Say whether a journal keeps as long as it should at the rate it grows."""
    check = f"{CHECK} of {shard}"
    held = f"{max(0, ends.last_seq - ends.first_seq + 1):,} rows, {size(ends.bytes)}"
    if ends.dropped:
        return warning(
            check,
            f"{held}; {ends.dropped:,} rows were dropped before a registered reader had read them",
            "The reader fell behind by more than journal_max_bytes, so what it missed is gone from the journal.",
            "Let the reader run more often, raise journal_max_bytes, or release it: godwit pipeline forget NAME.",
        )
    if growth is None or growth.bytes_per_second <= 0:
        return ok(check, f"{held}; nothing is being written")
    hours = spec.journal_max_bytes / growth.bytes_per_second / _HOUR
    keep = spec.journal_keep.total_seconds() / _HOUR
    how = "now" if growth.watched else "on average"
    found = f"{held}; grows {rate_in_words(growth.bytes_per_second)} {how}, holds {hours:,.1f} h at that rate"
    if hours >= keep:
        return ok(check, found)
    if hours < 1:
        return warning(
            check,
            found,
            f"A reader that rests for an hour loses rows: {size(spec.journal_max_bytes)} is all that is kept.",
            f"Raise journal_max_bytes (a day needs {size(growth.bytes_per_second * 24 * _HOUR)}), or read more often.",
        )
    return note(
        check,
        found,
        f"journal_keep asks for {keep:,.0f} h, but the size limit of {size(spec.journal_max_bytes)} comes first.",
        f"Raise journal_max_bytes to {size(growth.bytes_per_second * keep * _HOUR)}, or accept the shorter time.",
    )


def _watched(before: ShardEnds | None, after: ShardEnds, span: timedelta) -> Growth | None:
    if before is None or before.epoch != after.epoch or after.last_seq <= before.last_seq or not after.bytes:
        return None
    # Trimming shrinks the size meanwhile, so count rows and take their usual size.
    each = after.bytes / max(1, after.last_seq - after.first_seq + 1)
    return Growth(bytes_per_second=(after.last_seq - before.last_seq) * each / span.total_seconds(), watched=True)


async def _average(journal: Journal, shard: str, ends: ShardEnds, clock: Clock) -> Growth | None:
    if ends.first_seq > ends.last_seq:
        return None
    after = Position(ends.epoch, ends.first_seq - 1) if ends.first_seq > 1 else None
    chunks = await journal.read(shard, after, limit=1)
    if not chunks:
        return None
    seconds = (clock.now_ms() - decode_chunk(chunks[0]).at) / 1000
    return Growth(bytes_per_second=ends.bytes / seconds, watched=False) if seconds > 1 else None
