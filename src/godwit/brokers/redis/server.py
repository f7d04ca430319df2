"""Calls to the server: scripts by their hash, and patience while it is away.

This is the one place that knows which server has a queue: a cluster has several, sentinels name another one after a
failover.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any, Final

import hiredis

from godwit.brokers.redis.address import Address
from godwit.brokers.redis.link import Argument, Link
from godwit.brokers.redis.pool import CONNECT_SECONDS, Pool
from godwit.brokers.redis.replies import PASSING, LinkLost, Refused, unavailable
from godwit.brokers.redis.scripts import Script, script
from godwit.core.errors import BrokerClosed
from godwit.core.faults import reach

PATIENCE_SECONDS: Final = 10.0
"""How long a call outlasts a server that is away: a restart, not an outage."""
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0


class Servers:
    """The server of a broker, reached through a bounded pool."""

    def __init__(
        self,
        address: Address,
        *,
        max_connections: int,
        wait_seconds: float,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.address = address
        self._pool = Pool(address, size=max_connections, wait_seconds=wait_seconds)
        self._patience_seconds = patience_seconds
        self.closed = False

    @property
    def pool(self) -> Pool:
        """The connections for calls."""
        return self._pool

    async def open(self) -> None:
        """Connect once; what is wrong with the address or the password is said now, without patience."""
        try:
            self._pool.release(await self._pool.acquire())
        except (LinkLost, Refused) as error:
            raise unavailable(self.address.shown, error) from error

    async def run(
        self,
        name: str,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        *,
        again: bool = True,
        signed: bool = False,
    ) -> Any:
        """Run a script; `again` says that running it twice after a lost reply does no harm.

        When `signed`, the run id of the server that the call really goes to is the last argument.
        """
        what = script(name)
        command = ("EVALSHA", what.sha, len(keys), *keys, *arguments)
        return (await self._patiently([command], what, again=again, signed=signed))[0]

    async def run_each(
        self, name: str, calls: Sequence[tuple[Sequence[str], Sequence[Argument]]], *, signed: bool = False
    ) -> list[Any]:
        """Run a script several times, each with keys and arguments of its own, in one round trip."""
        what = script(name)
        commands = [("EVALSHA", what.sha, len(keys), *keys, *arguments) for keys, arguments in calls]
        return await self._patiently(commands, what, again=True, signed=signed) if commands else []

    async def ask(self, *commands: Sequence[Argument]) -> list[Any]:
        """Send plain commands together; return their replies."""
        return await self._patiently(commands, None, again=True)

    async def _patiently(
        self, commands: Sequence[Sequence[Argument]], what: Script | None, *, again: bool, signed: bool = False
    ) -> list[Any]:
        name = "ask" if what is None else what.name
        reach(f"redis.before_{name}")
        until: float | None = None
        pause = _FIRST_PAUSE
        while True:
            if self.closed:
                raise BrokerClosed(f"The Redis broker on {self.address.shown}")
            try:
                replies = await self._once(commands, what, signed=signed)
            except LinkLost as error:
                failure: LinkLost | Refused = error
                if not again:
                    raise unavailable(self.address.shown, error) from error
            except Refused as error:
                failure = error
                if error.word == "OOM":
                    raise
                if error.word not in PASSING:
                    raise unavailable(self.address.shown, error) from error
            else:
                reach(f"redis.after_{name}")
                return replies
            until = until or time.monotonic() + self._patience_seconds
            if self.closed:
                raise BrokerClosed(f"The Redis broker on {self.address.shown}") from failure
            if time.monotonic() + pause > until:
                raise unavailable(self.address.shown, failure) from failure
            await asyncio.sleep(pause * (0.5 + random.random()))
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _once(self, commands: Sequence[Sequence[Argument]], what: Script | None, *, signed: bool) -> list[Any]:
        replies = await self._pool.call(*commands, signed=signed)
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                break
        else:
            return replies
        refusal = Refused(str(reply))
        if refusal.word == "NOSCRIPT" and what is not None:
            loaded = await self._pool.call(("SCRIPT", "LOAD", what.source))
            replies = await self._pool.call(*commands, signed=signed)
            failed = next((one for one in (*loaded, *replies) if isinstance(one, hiredis.ReplyError)), None)
            if failed is None:
                return replies
            refusal = Refused(str(failed))
        raise refusal

    async def blocking(self) -> Link:
        """Return a connection of its own, outside the pool, for commands that block."""
        link = Link(self.address)
        await link.open(CONNECT_SECONDS)
        return link

    def close(self) -> None:
        """End all connections."""
        self.closed = True
        self._pool.close()
