"""Calls to the servers: scripts by their hash, sent to the server of their keys, and patience while it is away.

This is the one place that reacts to a server's word that a key is on its way (TRYAGAIN), or that it is no master any
more (READONLY); see `topology.py` for who has what, and `routes.py` for redirections.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakSet

import hiredis

from godwit.brokers.redis.client.command_batch import Command, CommandBatch
from godwit.brokers.redis.client.connection import Argument, RedisConnection, ServerInfo
from godwit.brokers.redis.client.discovery import TopologyDiscovery
from godwit.brokers.redis.client.errors import (
    ELSEWHERE,
    PASSING,
    UNTOUCHED,
    LinkLost,
    Refused,
    ServedClient,
    unavailable,
)
from godwit.brokers.redis.client.pool import CONNECT_SECONDS, ConnectionPool, ReservedConnection, Then, seen
from godwit.brokers.redis.client.routes import Routes
from godwit.brokers.redis.client.scripts import Script, script
from godwit.brokers.redis.client.topology import topology
from godwit.brokers.redis.url import RedisUrl, ServerAddress
from godwit.core.errors import BrokerClosed, BrokerError
from godwit.core.fault_points import fault_point

PATIENCE_SECONDS: Final = 10.0
"""How long a call outlasts a server that is away: a restart or a failover, not an outage."""
_PATIENCE_BESIDE_OTHERS: Final = 1.0
"""The same where what other servers hold waits for the answer."""
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.25
"""Short: the time that a failover takes is for the sentinels and nodes to say, not for us to add to."""


class RedisClient:
    """The servers of a broker, each reached through a bounded pool."""

    def __init__(
        self,
        target: RedisUrl,
        *,
        max_connections: int,
        wait_seconds: float,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.target = target
        self.topology = topology(target)
        self.max_connections = max_connections
        self._wait_seconds = wait_seconds
        self._patience_seconds = patience_seconds
        self._pools: dict[ServerAddress, ConnectionPool] = {}
        self._latest: tuple[ServerAddress, ConnectionPool] | None = None
        """The pool asked for last: comparing an address costs less than its hash."""
        self._routes = Routes(self.topology, self._pool_at)
        self._lookout = TopologyDiscovery(self.topology, self._drop_others)
        self._blocking: WeakSet[RedisConnection] = WeakSet()
        self.closed = False

    @property
    def shown(self) -> str:
        """The address as it may be shown."""
        return self.target.shown

    @property
    def busy_connections(self) -> int:
        """How many connections calls use at the moment, with all servers."""
        return sum(pool.open_connections - pool.idle_connections for pool in self._pools.values())

    @property
    def pool(self) -> ConnectionPool:
        """The connections for calls to the server of the URL, when it is only one."""
        return self._pool_at(self.target.data)

    def _pool_at(self, address: ServerAddress) -> ConnectionPool:
        if self._latest is not None and self._latest[0] is address:
            return self._latest[1]
        pool = self._pools.get(address)
        if pool is None:
            pool = ConnectionPool(
                address, size=self.max_connections, wait_seconds=self._wait_seconds, slow=self._lookout.suspect
            )
            self._pools[address] = pool
        self._latest = address, pool
        return pool

    async def open(self) -> None:
        """Find the servers and connect once; what is wrong with them or the password is said now, without patience."""
        try:
            await self._lookout.look()
            for address in self.topology.addresses():
                pool = self._pool_at(address)
                pool.release(await pool.acquire())
        except (LinkLost, Refused) as error:
            raise unavailable(self.shown, error) from error

    # Calls

    async def run(
        self,
        name: str,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        *,
        again: bool = True,
        signed: bool = False,
        then: Then | None = None,
    ) -> Any:
        """Run a script; `again` says that running it twice after a lost reply does no harm.

        When `signed`, the run id of the server that the call really goes to is the last argument. The command that
        `then` gives follows over the same connection; the answer is a pair then.
        """
        what = script(name)
        command = ("EVALSHA", what.sha, len(keys), *keys, *arguments)
        address = self.topology.address_of(keys[0]) if then is None and not self.closed else None
        if address is not None and (link := (pool := self._pool_at(address)).idle()) is not None:
            # Nearly always a connection is at hand and all goes well: the short way.
            fault_point(what.before)
            try:
                (reply,) = await pool.exchange(link, (command,), signed=signed)
            except LinkLost as error:
                if not again:
                    raise unavailable(self.shown, error) from error
            else:
                if not isinstance(reply, hiredis.ReplyError):
                    fault_point(what.after)
                    return reply
                if (refusal := Refused(str(reply))).word not in UNTOUCHED:
                    raise unavailable(self.shown, refusal) from refusal
        replies = await self._patiently([command], what, again=again, signed=signed, then=then)
        return replies[0] if then is None else (replies[0], replies[1])

    async def run_packed(self, what: Script, key: str, command: bytes, *, again: bool) -> Any:
        """Run a script whose command is written out, when a connection is at hand; return its answer.

        None says that it did not run, or, with `again`, that the outcome is unknown: `run` is the way then.
        """
        address = None if self.closed else self.topology.address_of(key)
        link = None if address is None else (pool := self._pool_at(address)).idle()
        if link is None:
            return None
        fault_point(what.before)
        try:
            (reply,) = await link.send_packed(command)
        except asyncio.CancelledError:
            link.when_quiet(pool.release)
            raise
        except LinkLost as error:
            pool.release(link)
            if not again:
                raise unavailable(self.shown, error) from error
            return None
        pool.release(link)
        if not isinstance(reply, hiredis.ReplyError):
            fault_point(what.after)
            return reply
        refusal = Refused(str(reply))
        if refusal.word == "NOSCRIPT":
            (loaded,) = await pool.call(("SCRIPT", "LOAD", what.source))
            if not isinstance(loaded, hiredis.ReplyError):
                return await self.run_packed(what, key, command, again=again)
        if refusal.word in UNTOUCHED or refusal.word == "OOM":
            return None
        raise unavailable(self.shown, refusal) from refusal

    async def run_each(
        self, name: str, calls: Sequence[tuple[Sequence[str], Sequence[Argument]]], *, signed: bool = False
    ) -> list[Any]:
        """Run a script several times, each with keys and arguments of its own; give an error where one failed."""
        what = script(name)
        return await self._each([("EVALSHA", what.sha, len(keys), *keys, *more) for keys, more in calls], what, signed)

    async def ask_each(self, *commands: Command) -> list[Any]:
        """Send plain commands; give an error where one failed."""
        return await self._each(commands, None, signed=False)

    async def _each(self, commands: Sequence[Command], what: Script | None, signed: bool) -> list[Any]:  # noqa: FBT001
        """Send commands to each server; those of one that is away fail alone, and so does one that is refused."""
        places: dict[ServerAddress | None, list[int]] = {}
        for index, command in enumerate(commands):
            key = command[1] if what is None else command[3]
            places.setdefault(self.topology.address_of(str(key)), []).append(index)
        patience = self._patience_seconds if len(places) == 1 else min(self._patience_seconds, _PATIENCE_BESIDE_OTHERS)
        found: list[Any] = [None] * len(commands)

        async def send(indexes: Sequence[int]) -> None:
            chosen = [commands[index] for index in indexes]
            try:
                replies = await self._patiently(chosen, what, again=True, signed=signed, patience=patience)
            except BrokerClosed:
                raise
            except BrokerError as error:
                if len(indexes) > 1 and isinstance(error.__cause__, Refused):
                    for index in indexes:
                        await send([index])
                    return
                replies = [error] * len(indexes)
            for index, reply in zip(indexes, replies, strict=True):
                found[index] = reply

        await asyncio.gather(*(send(indexes) for indexes in places.values()))
        return found

    def begin(
        self, name: str, address: ServerAddress, calls: Sequence[tuple[Sequence[str], Sequence[Argument]]]
    ) -> asyncio.Future[list[Any]] | None:
        """Send scripts to one server in this very turn, if a connection is at hand; None if there is none.

        The future gives the replies as they are, errors as values: who is elsewhere by now is not looked for.
        """
        link = None if self.closed else (pool := self._pool_at(address)).idle()
        if link is None:
            return None
        what = script(name)
        fault_point(what.before)
        replies = link.send(*[("EVALSHA", what.sha, len(keys), *keys, *arguments) for keys, arguments in calls])
        replies.add_done_callback(seen)
        link.when_quiet(pool.release)
        return replies

    def line(self, key: str) -> ReservedConnection | None:
        """Return a connection to the server of a key for commands that follow one another, if one is at hand."""
        address = None if self.closed else self.topology.address_of(key)
        link = None if address is None else (pool := self._pool_at(address)).idle()
        return None if link is None else ReservedConnection(pool, link)

    async def ask(self, *commands: Command) -> list[Any]:
        """Send plain commands, each with its key after its name; return their replies."""
        return await self._patiently(commands, None, again=True)

    async def end_client(self, key: str, lost: ServedClient) -> None:
        """Let the server of a key drop a connection that was given up: it may not have read all that was sent there."""

        def end(server: ServerInfo) -> Command:
            same = lost.id and server.run_id == lost.run_id
            return ("CLIENT", "KILL", "ID", lost.id) if same else ("PING",)

        await self._patiently([("EXISTS", key)], None, again=True, then=end)

    def send_now(self, *commands: Command) -> bool:
        """Send commands for one key in this very turn, when a connection is at hand; the replies are dropped."""
        address = None if self.closed else self.topology.address_of(str(commands[0][1]))
        link = None if address is None else (pool := self._pool_at(address)).idle()
        if link is None:
            return False
        link.send(*commands).cancel()
        link.when_quiet(pool.release)
        return True

    async def _patiently(
        self,
        commands: Sequence[Command],
        what: Script | None,
        *,
        again: bool,
        signed: bool = False,
        then: Then | None = None,
        patience: float | None = None,
    ) -> list[Any]:
        patience = self._patience_seconds if patience is None else patience
        name = "ask" if what is None else what.name
        fault_point(f"redis.before_{name}")
        call = CommandBatch(commands, what, signed=signed, then=then)
        until: float | None = None
        pause = _FIRST_PAUSE
        while True:
            if self.closed:
                raise BrokerClosed(f"The Redis broker on {self.shown}")
            seen = self.topology.generation
            try:
                await self._ask_before_connecting()
                failure = await self._routes.round(call)
            except LinkLost as error:
                failure = error
                if not again:
                    raise unavailable(self.shown, error) from error
            except Refused as error:  # by a server that was connected to just now
                failure = error
            if failure is None:
                fault_point(f"redis.after_{name}")
                return call.replies
            if isinstance(failure, Refused) and failure.word not in PASSING:
                raise unavailable(self.shown, failure) from failure
            until = until or time.monotonic() + patience
            if self.closed:
                raise BrokerClosed(f"The Redis broker on {self.shown}") from failure
            if time.monotonic() + pause > until:
                raise unavailable(self.shown, failure) from failure
            await asyncio.sleep(pause * (0.5 + random.random()))
            if isinstance(failure, LinkLost) or failure.word in ELSEWHERE:
                await self._lookout.look_again(seen)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def blocking(self, key: str) -> RedisConnection:
        """Return a connection of its own, outside the pools, for commands that block for a key."""
        await self._ask_before_connecting()
        address = self.topology.address_of(key)
        if address is None:
            await self._lookout.look_again(self.topology.generation)
            address = self.topology.address_of(key)
        if address is None:
            raise LinkLost("no server is known to have the key")
        link = RedisConnection(address)
        self._blocking.add(link)
        seen = self.topology.generation
        try:
            await link.open(CONNECT_SECONDS)
        except LinkLost:
            await self._lookout.look_again(seen)
            raise
        return link

    # Where things are

    def _drop_others(self) -> None:
        """Give up the connections to servers that no longer count: what waits there would wait in vain."""
        present = set(self.topology.addresses())
        self._latest = None
        for gone in self._pools.keys() - present:
            self._pools.pop(gone).close()
        for link in [link for link in self._blocking if link.address not in present]:
            link.abort(LinkLost("another server has taken over"))

    async def _ask_before_connecting(self) -> None:
        """Look who is master when no connection is left: one that died may be back and not know that it is none."""
        if not self.topology.may_be_deposed:
            return
        if not any(self._pool_at(address).connected for address in self.topology.addresses()):
            await self._lookout.look_again(self.topology.generation)

    async def look_again(self) -> None:
        """Look where slots and masters are: a server redirected a call."""
        await self._lookout.look_again(self.topology.generation)

    def close(self) -> None:
        """End all connections."""
        self.closed = True
        self._lookout.close()
        for pool in self._pools.values():
            pool.close()
