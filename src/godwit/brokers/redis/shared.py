"""Small values that all processes see."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from godwit.brokers.contract import SharedEntry
from godwit.brokers.redis.client.connection import Argument
from godwit.brokers.redis.client.script_runner import ScriptRunner, call_name
from godwit.brokers.redis.layout import keys
from godwit.core.clock import milliseconds
from godwit.core.limits import bounded

AT_ONCE: Final = 1_000
"""How many values one script removes: others wait for it meanwhile."""


class RedisShared:
    """Values in one hash, with versions and ttls."""

    def __init__(self, reach: ScriptRunner) -> None:
        self._reach = reach

    async def _run(self, *arguments: Argument) -> Any:
        return await self._reach.run_script("shared", keys.SHARED, (self._reach.now(), *arguments))

    async def get(self, key: str) -> SharedEntry | None:
        """Return the value, or None when it is missing or past its ttl."""
        found = await self._run("get", key)
        return SharedEntry(found[1], found[0]) if found is not None else None

    async def put(self, key: str, value: bytes, *, expected: int | None, ttl: timedelta | None = None) -> int | None:
        """Write when the present version is `expected`."""
        version: int | None = await self._run(
            "put",
            key,
            value,
            "" if expected is None else expected,
            "" if ttl is None else milliseconds(bounded(ttl)),
            call_name(),
        )
        return version

    async def delete(self, key: str) -> None:
        """Remove the value."""
        await self._run("delete", key)

    async def scan(self, prefix: str, *, after: str = "", limit: int | None = None) -> Mapping[str, SharedEntry]:
        """Return the values whose key begins with `prefix`, by their keys: those beyond `after`, at most `limit`."""
        begin = f"({after}" if after >= prefix else f"[{prefix}"  # compared here: a server may compare by its locale
        found = await self._run("scan", prefix, begin, -1 if limit is None else limit)
        return {found[n].decode(): SharedEntry(found[n + 2], found[n + 1]) for n in range(0, len(found), 3)}

    async def clear(self, first: str, until: str) -> None:
        """Remove the values from the key `first` on, up to `until` without it."""
        while await self._run("clear", first, until, AT_ONCE) == AT_ONCE:
            pass

    async def forget(self) -> None:
        """Drop what is past its ttl."""
        while await self._run("forget", "", AT_ONCE) == AT_ONCE:
            pass
