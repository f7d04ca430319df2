"""Extending leases from any thread: synchronous connections of its own, since the event loop may be busy."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

import hiredis

from godwit.brokers.redis.client.client import RedisClient
from godwit.brokers.redis.client.connection import Argument, greeted, greeting, packed_command
from godwit.brokers.redis.client.errors import PASSING, LinkLost, Refused, unavailable
from godwit.brokers.redis.client.script_runner import Now
from godwit.brokers.redis.client.scripts import script
from godwit.brokers.redis.settle import BATCH, aims, extension
from godwit.brokers.redis.url import ServerAddress
from godwit.core.errors import BrokerClosed
from godwit.core.names import AckId

_TIMEOUT_SECONDS: Final = 5
_ASK_SECONDS: Final = 0.5
_ASKED: Final = 5
"""How many are asked where things are, one after the other."""
_PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.4)
_READ_BYTES: Final = 65_536


class RedisRenewer:
    """Extends leases, one call at a time."""

    def __init__(self, servers: RedisClient, now: Now) -> None:
        self._servers, self._now = servers, now
        self._topology = servers.topology
        self._lock = threading.Lock()
        self._links: dict[ServerAddress, ThreadConnection] = {}
        self._closed = False

    def extend(self, ack_ids: Sequence[AckId], lease_ms: int) -> list[AckId]:
        """Let leases end `lease_ms` from now; return the ack ids refused."""
        by_shard, refused = aims(ack_ids)
        with self._lock:
            try:
                for shard, aimed in by_shard.items():
                    for start in range(0, len(aimed), BATCH):
                        part = aimed[start : start + BATCH]
                        names, arguments = extension(shard, part, lease_ms)
                        answer = self._run(names, (self._now(), shard[0], *arguments))
                        refused += [part[index - 1].place for index in answer]
            finally:
                if self._closed:
                    self._close_links()
        return [ack_ids[index] for index in sorted(refused)]

    def _run(self, names: Sequence[str], arguments: Sequence[Argument]) -> list[int]:
        """Run `extend.lua` where its keys are; look for them again a few times when they are elsewhere."""
        problem: LinkLost | Refused = LinkLost("no server is known to have the key")
        for pause in (0.0, *_PAUSES):
            time.sleep(pause)
            if self._closed:
                raise BrokerClosed(self._servers.shown)
            if self._topology.may_be_deposed and self._topology.address_of(names[0]) not in self._links:
                self._look()
            address = self._topology.address_of(names[0])
            try:
                if address is not None:
                    return self._extend(address, names, arguments)
            except LinkLost as error:
                problem = error
            except Refused as error:
                problem, (word, *where) = error, str(error).split(" ")
                if word == "MOVED" and address is not None:
                    self._topology.moved(int(where[0]), where[1], address)
                    continue
                if error.word not in PASSING and word != "ASK":  # a slot on its way is there in a moment
                    break
            self._look()
        raise unavailable(self._servers.shown, problem) from problem

    def _extend(self, address: ServerAddress, names: Sequence[str], arguments: Sequence[Argument]) -> list[int]:
        what, link = script("extend"), self._links.get(address)
        try:
            if link is None:
                link = self._links[address] = ThreadConnection(address)
            try:
                answer = link.call("EVALSHA", what.sha, len(names), *names, *arguments)
            except Refused as error:
                if error.word != "NOSCRIPT":
                    raise
                answer = link.call("EVAL", what.source, len(names), *names, *arguments)
        except LinkLost:
            self._links.pop(address, None)
            if link is not None:
                link.close()
            raise
        return [int(index) for index in answer]

    def _look(self) -> None:
        """Ask all who know where things are, as the event loop would if it were free; the newest answer counts."""
        newest: tuple[tuple[int, int], ServerAddress, list[Any]] | None = None
        for address in self._topology.asked()[:_ASKED]:
            with (
                contextlib.suppress(LinkLost, Refused),
                contextlib.closing(ThreadConnection(address, timeout_seconds=_ASK_SECONDS)) as link,
            ):
                answers = [link.send(*question) for question in self._topology.questions]
                newness = self._topology.newness_of(address, answers)
                newest = max(newest or (newness, address, answers), (newness, address, answers), key=itemgetter(0))
        if newest is not None:
            self._topology.learn(*newest[1:])

    def close(self) -> None:
        """End the connections; a call under way in another thread, which may wait for seconds, ends by an error."""
        self._closed = True
        if self._lock.acquire(blocking=False):
            try:
                self._close_links()
            finally:
                self._lock.release()
        else:
            for link in tuple(self._links.values()):
                link.interrupt()

    def _close_links(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()


class ThreadConnection:
    """A connection for one thread, which waits for each reply."""

    def __init__(self, address: ServerAddress, *, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        self._reader = hiredis.Reader()
        try:
            plain = socket.create_connection((address.host, address.port), timeout=timeout_seconds)
            self._socket = (
                plain if address.tls is None else address.tls.wrap_socket(plain, server_hostname=address.host)
            )
        except OSError as error:
            raise LinkLost(str(error)) from error
        try:
            greeted(address, [self.send(*command) for command in greeting(address)])
        except BaseException:
            self.close()
            raise

    def call(self, *command: Argument) -> Any:
        """Send a command and return its reply; an error is raised."""
        reply = self.send(*command)
        if isinstance(reply, hiredis.ReplyError):
            raise Refused(str(reply))
        return reply

    def send(self, *command: Argument) -> Any:
        """Send a command and return its reply, an error as a value."""
        try:
            self._socket.sendall(packed_command(command))
            while (reply := self._reader.gets()) is False:
                data = self._socket.recv(_READ_BYTES)
                if not data:
                    raise LinkLost("the server closed the connection")
                self._reader.feed(data)
        except (OSError, hiredis.ProtocolError) as error:
            raise LinkLost(str(error) or "no reply in time") from error
        return reply

    def interrupt(self) -> None:
        """Let a thread that waits for a reply wait no longer; it closes the connection."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # not TLS's: that is its reader's alone

    def close(self) -> None:
        """End it."""
        self._socket.close()
