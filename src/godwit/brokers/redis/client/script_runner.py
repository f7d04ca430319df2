"""What the parts of the broker need of the server: scripts on a queue, and plain commands."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from godwit.brokers.redis.client.client import RedisClient
from godwit.brokers.redis.client.connection import Argument, ServerInfo
from godwit.brokers.redis.url import ServerAddress

REPLICAS_MS: Final = 5_000
"""How long a publish waits for replicas."""
_NAME_BYTES: Final = 9
Now = Callable[[], str]
"""The time that scripts are given: nothing in production, where they ask the server."""


def call_name() -> str:
    """Return a name for one call of a script that must not be carried out twice."""
    return secrets.token_urlsafe(_NAME_BYTES)


def servers_time() -> str:
    """Leave the time to the server."""
    return ""


def answered(answers: Sequence[Any]) -> list[tuple[int, Any]]:
    """Return what was answered with its place; raises the first error when nothing was."""
    found = [(n, answer) for n, answer in enumerate(answers) if not isinstance(answer, BaseException)]
    if answers and not found:
        raise answers[0]
    return found


class ScriptRunner:
    """The way to the server for one broker."""

    def __init__(self, servers: RedisClient, now: Now) -> None:
        self._servers = servers
        self.now = now
        self.run_script = servers.run
        self.run_packed = servers.run_packed
        self.line = servers.line
        self.ask = servers.ask
        self.end_client = servers.end_client
        self.ask_each = servers.ask_each
        self.place_of = servers.topology.address_of

    @property
    def shown(self) -> str:
        """The address as it may be shown."""
        return self._servers.shown

    def run(
        self,
        name: str,
        queue: str,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        *,
        again: bool = True,
        signed: bool = False,
    ) -> Coroutine[Any, Any, Any]:
        """Run a script that takes the time and the queue first and, when `signed`, the server's run id last."""
        return self.run_script(name, keys, (self.now(), queue, *arguments), again=again, signed=signed)

    def begin(
        self, name: str, place: ServerAddress, calls: Sequence[tuple[str, Sequence[str], Sequence[Argument]]]
    ) -> asyncio.Future[list[Any]] | None:
        """Send a script for several queues (queue, keys, arguments) of one server at once, if a connection is free."""
        now = self.now()
        return self._servers.begin(name, place, [(keys, (now, queue, *more)) for queue, keys, more in calls])

    async def run_replicated(
        self,
        name: str,
        queue: str,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        *,
        again: bool = True,
        replicas: int,
    ) -> tuple[Any, int]:
        """Run a script; return its answer when so many replicas have what it changed, and how many have it in the end.

        They have it in memory, or on disk where the server keeps an append-only file and knows about theirs.
        """
        on_disk = self._servers.target.on_disk

        def wait(server: ServerInfo) -> Sequence[Argument]:
            if on_disk and server.waits_for_disks:
                return ("WAITAOF", 0, replicas, REPLICAS_MS)
            return ("WAIT", replicas, REPLICAS_MS)

        answer, reached = await self.run_script(name, keys, (self.now(), queue, *arguments), again=again, then=wait)
        count = reached[1] if isinstance(reached, list) else reached
        return answer, count if isinstance(count, int) else 0  # an error: it is no master any more

    async def run_each(
        self, name: str, calls: Sequence[tuple[str, Sequence[str], Sequence[Argument]]], *, signed: bool = False
    ) -> list[Any]:
        """Run a script on several queues (queue, keys, arguments) in one round trip; give an error where one failed."""
        now = self.now()
        made = [(keys, (now, queue, *more)) for queue, keys, more in calls]
        return await self._servers.run_each(name, made, signed=signed)
