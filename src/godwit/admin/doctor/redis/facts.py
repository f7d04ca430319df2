"""What can be seen of a Redis server without changing anything, as plain values."""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from godwit.core.clock import SYSTEM_CLOCK, Clock

PINGS: Final = 20
SETTINGS: Final = (
    "appendonly", "appendfsync", "no-appendfsync-on-rewrite", "auto-aof-rewrite-percentage",
    "auto-aof-rewrite-min-size", "maxmemory", "maxmemory-policy", "maxclients", "timeout", "save", "proto-max-bulk-len",
)  # fmt: skip


class RedisFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A look at a server; sizes in bytes, times in seconds."""

    info: Mapping[str, Any]
    settings: Mapping[str, str]
    """Empty when the server does not let us see them."""
    aof_bytes_per_second: float | None
    skew_seconds: float
    round_trip_median: float
    round_trip_worst: float

    @property
    def program(self) -> str:
        """The server's name."""
        return "Valkey" if self.info.get("server_name") == "valkey" else "Redis"

    @property
    def version(self) -> tuple[int, ...]:
        """The version of the protocol and commands; Valkey says which Redis it is like."""
        return numbers(str(self.info.get("redis_version", "0")))

    @property
    def shown_version(self) -> str:
        """The server's own version."""
        return str(self.info.get("valkey_version") or self.info.get("redis_version") or "unknown")

    def number(self, name: str) -> int:
        """Return a number of INFO, 0 when the server does not have it."""
        value = self.info.get(name, 0)
        return int(value) if isinstance(value, int | float) else 0

    def setting(self, name: str) -> str | None:
        """Return a setting, or None when it cannot be seen."""
        return self.settings.get(name)

    def setting_number(self, name: str) -> int:
        """Return a numeric setting, 0 when it cannot be seen."""
        value = self.settings.get(name, "")
        return int(value) if value.isdigit() else 0


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


async def gather(client: Redis, *, span: timedelta, clock: Clock = SYSTEM_CLOCK) -> RedisFacts:
    """Look at the server twice, `span` apart; measure round trips and the clock in between."""
    began = time.perf_counter()
    before = await client.info("everything")
    skew = await _skew(client, clock)
    trips = [await _round_trip(client) for _ in range(PINGS)]
    await asyncio.sleep(max(0.0, span.total_seconds() - (time.perf_counter() - began)))
    info = await client.info("everything")
    elapsed = time.perf_counter() - began
    return RedisFacts(
        info=info,
        settings=await _settings(client),
        aof_bytes_per_second=_growth(before, info, elapsed),
        skew_seconds=skew,
        round_trip_median=statistics.median(trips),
        round_trip_worst=max(trips),
    )


async def _settings(client: Redis) -> dict[str, str]:
    try:
        found = await client.config_get(*SETTINGS)
    except ResponseError:  # managed servers hide CONFIG, and an account may lack the right
        return {}
    return {_text(name): _text(value) for name, value in found.items()}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


async def _skew(client: Redis, clock: Clock) -> float:
    """Return how far the server's clock is ahead of ours; half of the round trip is the error."""
    sent = clock.now_ms()
    seconds, micros = await client.time()
    here = (sent + clock.now_ms()) / 2
    return (seconds * 1000 + micros / 1000 - here) / 1000


async def _round_trip(client: Redis) -> float:
    began = time.perf_counter()
    await client.ping()
    return time.perf_counter() - began


def _growth(before: Mapping[str, Any], after: Mapping[str, Any], seconds: float) -> float | None:
    """Return how fast the append-only file grows; None when it is off or was rewritten meanwhile."""
    if not after.get("aof_enabled"):
        return None
    grown = after.get("aof_current_size", 0) - before.get("aof_current_size", 0)
    return grown / seconds if grown >= 0 else None
