"""Hearing markers: one blocking connection for all wake keys that one command may wait for.

On one server that is a single connection, however many wait; in a cluster a command waits for keys of one slot, so
there is a connection for each queue and partition where a pull waits.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import hiredis

from godwit.brokers.contract import Place
from godwit.brokers.redis.client.client import RedisClient
from godwit.brokers.redis.client.connection import Argument, RedisConnection, ServerInfo
from godwit.brokers.redis.client.errors import LinkLost, Refused
from godwit.brokers.redis.listen.prefetch import ParkedPull
from godwit.brokers.redis.pull import PULL_ONE
from godwit.core.background import Background

_BLOCK_SECONDS: Final = 5
_DEAF_SECONDS: Final = 2 * _BLOCK_SECONDS
"""After so long without an answer the server is not waiting with us any more."""
_IDLE_SECONDS: Final = 10.0
_PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
Markers = Mapping[str, Place]
"""Wake keys, and the places whose messages they announce."""


class WakeSubscriber:
    """Waits for the markers of some wake keys; `wanted` gives those that a pull waits for now."""

    def __init__(
        self,
        servers: RedisClient,
        key: str,
        *,
        wanted: Callable[[], Markers],
        heard: Callable[[Place, str], None],
        missed: Callable[[Markers], None],
        send: Callable[..., None],
        park: Callable[[Markers, ServerInfo], ParkedPull | None],
        answered: Callable[[ParkedPull, Place | None, Any], None],
        lost: Callable[[ParkedPull], None],
    ) -> None:
        self._servers, self._wanted, self._heard_marker, self._missed, self._send = servers, wanted, heard, missed, send
        self._park, self._answered, self._lost = park, answered, lost
        self.parked: ParkedPull | None = None
        """The pull that follows the marker."""
        self._unparked = asyncio.Event()
        self._marked: Place | None = None
        self._replies = 0
        tag = key[key.find("{") : key.find("}") + 1]
        self._key, self._nudge = key, f"godwit:{tag}:nudge:{secrets.token_hex(8)}"
        self._heard: Markers = {}
        """What the blocking connection waits for at the moment."""
        self._nudged = False
        self._news = asyncio.Event()
        self._background = Background("redis")
        self.task = self._background.keep("wake-ups", self._hear).task

    def look(self, key: str) -> None:
        """Subscribe to this key's markers too: a pull waits for them now."""
        self._news.set()
        if self._heard and not self._nudged and key not in self._heard:
            self._nudged = True
            self._send(*self._nudging())

    def _nudging(self) -> tuple[tuple[str | int, ...], ...]:
        return ("ZADD", self._nudge, 0, "n"), ("PEXPIRE", self._nudge, 10_000)

    def unpark(self) -> None:
        """Let the pull not run any more, or before whatever is sent from now on: whom it was for is gone."""
        if self.parked is not None and not self._nudged:
            self._nudged = True
            if not self._servers.send_now(*self._nudging()):
                self._send(*self._nudging())

    async def called_back(self) -> None:
        """Return when no pull waits on the server."""
        self.unpark()
        if self.parked is not None:
            await self._unparked.wait()

    async def _hear(self) -> None:
        """Wait for markers as long as a pull listens; come back after every loss of the connection."""
        failures = 0
        while True:
            try:
                link = await self._servers.blocking(self._key)
            except (LinkLost, Refused):
                await asyncio.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
                failures += 1
                continue
            failures = 0
            try:
                if self._heard:
                    self._missed(self._heard)  # markers may have been lost with the connection
                if not await self._hear_on(link):
                    return
            except (LinkLost, Refused) as error:
                if self.parked is not None:
                    self._lost(self.parked)
                    self.parked = None
                self._unparked.set()
                self._heard = self._heard or self._wanted()
                if isinstance(error, Refused):
                    await self._servers.look_again()
                await asyncio.sleep(_PAUSES[0])
            finally:
                link.close()

    async def _hear_on(self, link: RedisConnection) -> bool:
        """Read markers until the connection breaks, or no pull has waited for a while: then return False."""
        link.at_once = self._take
        while True:
            wanted = self._wanted()
            if not wanted:
                self._heard = {}
                self._news.clear()
                try:
                    async with asyncio.timeout(_IDLE_SECONDS):
                        await self._news.wait()
                except TimeoutError:
                    if not self._wanted():
                        return False
                continue
            self._heard, self._nudged, self._marked, self._replies = wanted, False, None, 0
            self.parked = self._park(wanted, link.server)
            self._unparked.clear()
            commands: list[Sequence[Argument]] = [("BZPOPMIN", self._nudge, *wanted, _BLOCK_SECONDS)]
            if self.parked is not None:
                commands.append(self.parked.command)
            try:
                async with asyncio.timeout(_DEAF_SECONDS):
                    replies = await link.send(*commands)
                    if len(replies) > 1 and str(replies[1]).startswith("NOSCRIPT"):
                        await link.send(("SCRIPT", "LOAD", PULL_ONE.source))
            except TimeoutError:
                raise LinkLost("the server has stopped answering") from None
            if isinstance(replies[0], hiredis.ReplyError):
                raise Refused(str(replies[0]))

    def _take(self, reply: Any) -> None:
        """Wake for a marker as soon as it is read, a turn of the loop before its call returns."""
        self._replies += 1
        if self._replies == 1:
            if isinstance(reply, list) and (place := self._heard.get(key := reply[0].decode())) is not None:
                self._marked = place
                if self.parked is None:
                    self._heard_marker(place, key)
        elif self.parked is not None:
            parked, self.parked = self.parked, None
            self._unparked.set()
            self._answered(parked, self._marked, reply)
