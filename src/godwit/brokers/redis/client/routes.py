"""A round of a call: to the servers that have the keys, along with redirections.

This is the one place that reacts to a server's word that another has the key (MOVED, ASK), or that it does not know the
script.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import hiredis

from godwit.brokers.redis.client.command_batch import CommandBatch
from godwit.brokers.redis.client.errors import LinkLost, Refused
from godwit.brokers.redis.client.pool import ConnectionPool
from godwit.brokers.redis.client.topology import Topology
from godwit.brokers.redis.url import ServerAddress

_ASKING: Final = ("ASKING",)
_REDIRECTIONS: Final = 5


class Routes:
    """The ways to the servers of a broker; `pool_at` gives the connections to each."""

    def __init__(self, topology: Topology, pool_at: Callable[[ServerAddress], ConnectionPool]) -> None:
        self._topology, self._pool_at = topology, pool_at

    async def round(self, call: CommandBatch) -> LinkLost | Refused | None:
        """Send what has no reply yet to those who have the keys; return why something has none still."""
        for _ in range(_REDIRECTIONS):
            parts: dict[ServerAddress, list[int]] = {}
            for index in call.left:
                address = self._topology.address_of(call.key(index))
                if address is None:
                    return Refused("CLUSTERDOWN no server is known to have the key")
                parts.setdefault(address, []).append(index)
            if len(parts) == 1:
                ((address, indexes),) = parts.items()
                problem: LinkLost | Refused | None = await self._send(call, address, indexes)
            else:
                problem = await self._send_to_all(call, parts)
            if problem is None or not str(problem).startswith("MOVED "):
                return problem
        return Refused("TRYAGAIN it was redirected too often")

    async def _send_to_all(
        self, call: CommandBatch, parts: dict[ServerAddress, list[int]]
    ) -> LinkLost | Refused | None:
        sent = [self._send(call, address, indexes) for address, indexes in parts.items()]
        problem: LinkLost | Refused | None = None
        for result in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, LinkLost):
                raise result
            problem = problem or result
        return problem

    async def _send(self, call: CommandBatch, address: ServerAddress, indexes: Sequence[int]) -> Refused | None:
        """Send some commands to one server; return the last refusal, after having learned from all of them."""
        pool, what = self._pool_at(address), call.what
        refusals = call.take(indexes, await pool.call(*call.words(indexes), signed=call.signed, then=call.then))
        if what is not None and any(refusal.word == "NOSCRIPT" for refusal in refusals.values()):
            (loaded,) = await pool.call(("SCRIPT", "LOAD", what.source))
            if isinstance(loaded, hiredis.ReplyError):
                return Refused(str(loaded))
            indexes = list(refusals)
            refusals = call.take(indexes, await pool.call(*call.words(indexes), signed=call.signed, then=call.then))
        problem: Refused | None = None
        for index, refusal in refusals.items():
            word, *where = str(refusal).split(" ")
            if word == "MOVED":
                self._topology.moved(int(where[0]), where[1], address)
            elif word == "ASK" and (asked := await self._send_asking(call, index, where[1], address)) is None:
                continue
            problem = refusal if word != "ASK" else asked
        return problem

    async def _send_asking(self, call: CommandBatch, index: int, place: str, address: ServerAddress) -> Refused | None:
        """Send a command to the server that is getting its slot."""
        pool, what = self._pool_at(self._topology.named(place, address)), call.what
        for _ in range(2):
            replies = await pool.call(_ASKING, *call.words([index]), signed=call.signed, then=call.then)
            refusal = call.take([index], replies[1:]).get(index)
            if refusal is None or refusal.word != "NOSCRIPT" or what is None:
                return refusal
            await pool.call(("SCRIPT", "LOAD", what.source))
        return refusal
