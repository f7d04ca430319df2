"""Groups and consumers that are no longer used: they cost memory, and may hold entries for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Final

import msgspec
from redis.asyncio import Redis

from godwit.admin.doctor.findings import Finding, note, ok, warning
from godwit.admin.doctor.units import seconds_in_words

STALE: Final = timedelta(days=1)
"""A consumer that has been silent for so long is not coming back."""
MOST_STREAMS: Final = 2_000
PAGE: Final = 1_000
CHECK: Final = "groups"


class ConsumerFacts(msgspec.Struct, frozen=True):
    """A consumer of a group of a stream."""

    stream: str
    group: str
    name: str
    pending: int
    idle_ms: int


async def examine_groups(client: Redis, *, stale: timedelta = STALE) -> Finding:
    """Look at the consumers of all streams, at most two thousand of them."""
    streams, groups = set[str](), set[tuple[str, str]]()
    consumers: list[ConsumerFacts] = []
    async for stream, group in _groups(client):
        streams.add(stream)
        groups.add((stream, group))
        consumers += [
            ConsumerFacts(stream, group, _text(consumer["name"]), consumer["pending"], consumer["idle"])
            for consumer in await client.xinfo_consumers(stream, group)
        ]
    return judge(consumers, len(streams), len(groups), stale)


def judge(consumers: list[ConsumerFacts], streams: int, groups: int, stale: timedelta) -> Finding:
    """Say whether some of them are left-overs."""
    limit_ms = stale.total_seconds() * 1000
    found = f"{groups:,} groups of {streams:,} streams, {len(consumers):,} consumers"
    silent = [consumer for consumer in consumers if consumer.idle_ms > limit_ms]
    holding = [one for one in silent if one.pending]
    if holding:
        worst = max(holding, key=lambda one: one.idle_ms)
        return warning(
            CHECK,
            f"{found}; {sum(one.pending for one in holding):,} entries are held by {len(holding):,} silent consumers, "
            f"such as {worst.name!r} of {worst.group!r} on {worst.stream!r} for {_idle(worst)}",
            "No consumer works on these entries. Godwit takes due leases back with every pull and every maintenance, "
            "so either no worker of that group has run since, or the group is not Godwit's.",
            "Run a worker for the group. A group of your own: XAUTOCLAIM the entries first; XGROUP DELCONSUMER alone "
            "loses them.",
        )
    if silent:
        worst = max(silent, key=lambda one: one.idle_ms)
        return note(
            CHECK,
            f"{found}; {len(silent):,} of them silent for more than {seconds_in_words(stale.total_seconds())}, "
            f"such as {worst.name!r} of {worst.group!r} on {worst.stream!r}",
            "They hold nothing and cost a little memory each; processes with random names leave one behind every time.",
            "XGROUP DELCONSUMER the ones you know to be gone, and give consumers lasting names (REDIS_CONSUMER_ID).",
        )
    return ok(CHECK, found)


async def _groups(client: Redis) -> AsyncIterator[tuple[str, str]]:
    seen = 0
    async for key in client.scan_iter(count=PAGE, _type="stream"):
        seen += 1
        if seen > MOST_STREAMS:
            return
        for group in await client.xinfo_groups(key):
            yield _text(key), _text(group["name"])


def _idle(one: ConsumerFacts) -> str:
    return seconds_in_words(one.idle_ms / 1000)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
