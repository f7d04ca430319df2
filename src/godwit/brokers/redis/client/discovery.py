"""Finding out where things are: all who should know are asked at once, and the newest answer counts.

Sentinels and nodes hear of a failover one after the other, up to two seconds apart. Their answers carry an epoch, so
the newest answer is believed, and a server that is behind, or cut off, is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from godwit.brokers.redis.client.connection import RedisConnection
from godwit.brokers.redis.client.errors import LinkLost, Refused
from godwit.brokers.redis.client.topology import Question, Topology
from godwit.brokers.redis.url import ServerAddress

_ASK_SECONDS: Final = 2.0
"""How long one who should know where things are may take to answer."""
_GRACE_SECONDS: Final = 0.25
"""How long the others may take once one has answered."""
_AT_ONCE: Final = 5
"""How many are asked together: all sentinels, and of a large cluster enough to find one that is up to date."""


class TopologyDiscovery:
    """Keeps a topology up to date for a broker; those who want to know at the same time look once."""

    def __init__(self, topology: Topology, changed: Callable[[], None]) -> None:
        self._topology, self._changed = topology, changed
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    async def look(self) -> None:
        """Ask those who know where things are, until some have answered."""
        asked = self._topology.asked()
        problem: LinkLost | Refused | None = None
        for start in range(0, len(asked), _AT_ONCE):
            found, error = await self._newest(asked[start : start + _AT_ONCE])
            if found is not None:
                self._topology.learn(*found)
                self._changed()
                return
            # One who says what is wrong with the URL tells more than one who says nothing.
            problem = error if problem is None or isinstance(error, Refused) else problem
        if problem is not None:
            raise problem

    async def _newest(
        self, asked: Sequence[ServerAddress]
    ) -> tuple[tuple[ServerAddress, Sequence[Any]] | None, LinkLost | Refused | None]:
        """Return the newest answer of some, with who gave it, or else what is wrong with them."""
        loop = asyncio.get_running_loop()
        asking = {loop.create_task(_answers(address, self._topology.questions)): address for address in asked}
        pending, until = set(asking), loop.time() + 2 * _ASK_SECONDS
        newest: tuple[tuple[int, int], tuple[ServerAddress, Sequence[Any]]] | None = None
        problem: LinkLost | Refused | None = None
        try:
            while pending and (left := until - loop.time()) > 0:
                done, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    try:
                        answers = task.result()
                        newness = self._topology.newness_of(asking[task], answers)
                    except (LinkLost, Refused) as error:
                        problem = error if problem is None or isinstance(error, Refused) else problem
                        continue
                    if newest is None or newness > newest[0]:
                        newest = newness, (asking[task], answers)
                    until = min(until, loop.time() + _GRACE_SECONDS)
        finally:
            for task in pending:
                task.cancel()
            if pending:
                await asyncio.wait(pending)  # their connections are closed
        return (None, problem) if newest is None else (newest[1], None)

    async def look_again(self, seen: int) -> None:
        """Look where slots and masters are, unless done after `seen`; the next call shows whether it worked."""
        if self._topology.generation == seen and (looking := self._begin()) is not None:
            await asyncio.wait([looking])

    def suspect(self) -> None:
        """Look whether another has taken the place of a server that takes long to answer."""
        self._begin()

    def _begin(self) -> asyncio.Task[None] | None:
        """Return the look under way, or a new one; None when there is no server to ask."""
        if self._closed or not self._topology.asked():
            return None
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self.look())
            self._looking.add_done_callback(self._looked)
        return self._looking

    def _looked(self, task: asyncio.Task[None]) -> None:
        self._looking = None
        if not task.cancelled():
            task.exception()  # seen: the waiting call finds out by the next failure

    def close(self) -> None:
        """Look no more."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()


async def _answers(address: ServerAddress, questions: Sequence[Question]) -> Sequence[Any]:
    """Ask one who should know; errors are values, as the questions may be answered in part."""
    link = RedisConnection(address)
    await link.open(_ASK_SECONDS)
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            return await link.send(*questions)
    except TimeoutError:
        raise LinkLost(f"{address.place} does not answer") from None
    finally:
        link.close()
