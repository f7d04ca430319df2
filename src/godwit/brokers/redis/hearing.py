"""Hearing markers: one blocking connection for all wake keys that one command may wait for.

On one server that is a single connection, however many wait; in a cluster a command waits for keys of one slot, so
there is a connection for each queue and partition where somebody waits.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

import hiredis

from godwit.brokers.contract import Place
from godwit.brokers.redis.link import Link
from godwit.brokers.redis.replies import LinkLost, Refused
from godwit.brokers.redis.server import Servers

_BLOCK_SECONDS: Final = 5
_DEAF_SECONDS: Final = 2 * _BLOCK_SECONDS
"""After so long without an answer the server is not waiting with us any more."""
_IDLE_SECONDS: Final = 10.0
_PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
Markers = Mapping[str, Place]
"""Wake keys, and the places whose messages they announce."""


class Ear:
    """Waits for the markers of some wake keys; `wanted` gives those that somebody waits for now."""

    def __init__(
        self,
        servers: Servers,
        key: str,
        *,
        wanted: Callable[[], Markers],
        heard: Callable[[Place, str], None],
        missed: Callable[[Markers], None],
        send: Callable[..., None],
    ) -> None:
        self._servers, self._wanted, self._heard_marker, self._missed, self._send = servers, wanted, heard, missed, send
        tag = key[key.find("{") : key.find("}") + 1]
        self._key, self._nudge = key, f"godwit:{tag}:nudge:{secrets.token_hex(8)}"
        self._heard: Markers = {}
        """What the blocking connection waits for at the moment."""
        self._nudged = False
        self._news = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._hear())

    def look(self, key: str) -> None:
        """Hear this key's markers too: somebody waits for them now."""
        self._news.set()
        if self._heard and not self._nudged and key not in self._heard:
            self._nudged = True
            self._send(("ZADD", self._nudge, 0, "n"), ("PEXPIRE", self._nudge, 10_000))

    async def _hear(self) -> None:
        """Wait for markers as long as anybody listens; come back after every loss of the connection."""
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
                self._heard = self._heard or self._wanted()
                if isinstance(error, Refused):
                    await self._servers.look_again()
                await asyncio.sleep(_PAUSES[0])
            finally:
                link.close()

    async def _hear_on(self, link: Link) -> bool:
        """Hear until the connection breaks, or nobody has wanted anything for a while: then say False."""
        link.at_once = self._take_marker
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
            self._heard, self._nudged = wanted, False
            try:
                async with asyncio.timeout(_DEAF_SECONDS):
                    (reply,) = await link.send(("BZPOPMIN", self._nudge, *wanted, _BLOCK_SECONDS))
            except TimeoutError:
                raise LinkLost("the server has stopped answering") from None
            if isinstance(reply, hiredis.ReplyError):
                raise Refused(str(reply))

    def _take_marker(self, reply: Any) -> None:
        """Wake for a marker as soon as it is read, a turn of the loop before its call returns."""
        if isinstance(reply, list) and (place := self._heard.get(key := reply[0].decode())) is not None:
            self._heard_marker(place, key)
