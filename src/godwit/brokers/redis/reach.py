"""What the parts of the broker need of the server: scripts on a queue, and plain commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from godwit.brokers.redis.link import Argument
from godwit.brokers.redis.server import Servers

Now = Callable[[], str]
"""The time that scripts are given: nothing in production, where they ask the server."""


def servers_time() -> str:
    """Leave the time to the server."""
    return ""


class Reach:
    """The way to the server for one broker."""

    def __init__(self, servers: Servers, now: Now) -> None:
        self._servers = servers
        self.now = now
        self.run_script = servers.run
        self.ask = servers.ask

    @property
    def shown(self) -> str:
        """The address as it may be shown."""
        return self._servers.shown

    async def run(
        self,
        name: str,
        queue: str,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        *,
        again: bool = True,
        signed: bool = False,
    ) -> Any:
        """Run a script that takes the time and the queue first and, when `signed`, the server's run id last."""
        return await self.run_script(name, keys, (self.now(), queue, *arguments), again=again, signed=signed)

    async def run_each(
        self, name: str, calls: Sequence[tuple[str, Sequence[str], Sequence[Argument]]], *, signed: bool = False
    ) -> list[Any]:
        """Run a script on several queues (queue, keys, arguments) in one round trip."""
        now = self.now()
        made = [(keys, (now, queue, *more)) for queue, keys, more in calls]
        return await self._servers.run_each(name, made, signed=signed)
