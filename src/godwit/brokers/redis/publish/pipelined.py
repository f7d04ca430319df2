"""The chunks of one publish on their way to the server: the next follows while it works on the one before.

A server that gets the next chunk when it has answered the one before is idle meanwhile. So two are under way, over one
connection. Chunks have to be stored in order, and what is stored of a call when something goes wrong has to be its
beginning: each chunk is remembered by a name beside the ids of its messages, and the one that follows is stored only
where that name is known (see `arrive.lua`). What has no such names (delays, ordering keys, another queue) waits for the
answer to the one before, and so does everything after a chunk that was not stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from secrets import token_hex
from typing import Any, Final, NamedTuple, Self

from godwit.brokers.redis.client.connection import packed_command
from godwit.brokers.redis.client.errors import LinkLost
from godwit.brokers.redis.client.pool import ReservedConnection
from godwit.brokers.redis.client.script_runner import ScriptRunner
from godwit.brokers.redis.client.scripts import Script, script
from godwit.brokers.redis.layout.catalog import Catalog
from godwit.brokers.redis.publish.fast_command import STORED, fast_publish_command
from godwit.brokers.redis.publish.general_command import general_publish_command
from godwit.core.fault_points import fault_point
from godwit.core.messages.envelope import Envelope

AT_ONCE: Final = 2
_NAMED: Final = "\1"
"""What the names of chunks begin with; ids are printable, or UUIDs behind a zero (see `encoding.mark`)."""


class Written(NamedTuple):
    """A chunk's whole command."""

    what: Script
    key: str
    command: bytes
    name: str
    """By which the next chunk may follow it; empty when it may not."""
    follows: bool
    """Whether it is stored only after the chunk before."""


class PipelinedPublish:
    """Sends the chunks of one publish in order and gives the answers in that order."""

    def __init__(
        self, reach: ScriptRunner, catalog: Catalog, chunks: Sequence[Sequence[Envelope]], replicas: int | None
    ) -> None:
        self._reach, self._catalog, self._chunks, self._replicas = reach, catalog, chunks, replicas
        self._at_once = AT_ONCE
        self._call = _NAMED + token_hex(8)
        self._next = 0
        self._ready: tuple[Written | None] | None = None
        """The next chunk, when it was written out before it could be sent."""
        self._sent: deque[asyncio.Future[list[Any]] | None] = deque()
        self._name = ""
        """That of the chunk sent last, when the next may follow it."""
        self._line: ReservedConnection | None = None

    async def answer(self) -> Any:
        """Return the script's answer to the next chunk; None when it was not sent or its outcome is unknown."""
        self._send()
        replies = self._sent.popleft()
        answer = None
        if replies is not None:
            try:
                (answer,) = await replies
            except LinkLost:
                answer = None
        if answer != STORED:
            self._at_once = 1
            self._end_line()  # who stores this chunk another way needs a connection
        return answer

    def _send(self) -> None:
        """Send what may be sent now."""
        while self._next < len(self._chunks) and len(self._sent) < self._at_once:
            (written,) = self._ready or (self._written_out(),)
            wanted = self._line is not None and self._line.wanted
            if self._sent and (wanted or written is None or not written.follows):
                self._ready = (written,)
                return
            self._ready = None
            self._next += 1
            self._name = "" if written is None else written.name
            self._sent.append(None if written is None else self._sent_over_line(written))

    def _sent_over_line(self, written: Written) -> asyncio.Future[list[Any]] | None:
        line = self._line
        if line is not None and (line.wanted or line.address != self._reach.place_of(written.key)):
            self._end_line()
            line = None
        if line is None:
            line = self._line = self._reach.line(written.key)
        if line is None:
            return None
        fault_point(written.what.before)
        return line.send(written.command)

    def _written_out(self) -> Written | None:
        """Return the next chunk's command, where one is all it takes and may be sent again."""
        chunk = self._chunks[self._next]
        queue = self._catalog.known(chunk[0].queue)
        if queue is None or queue.spec.partitions > 1 or not queue.limits[3]:
            return None
        if queue.spec.min_replicas if self._replicas is None else self._replicas:
            return None
        before = self._name if self._sent else ""
        name = f"{self._call}{self._next}" if self._is_followed() else ""
        plain = fast_publish_command(queue, chunk, before, name)
        script_name, keys, arguments = plain or general_publish_command(queue, chunk)
        what = script(script_name)
        words = ("EVALSHA", what.sha, len(keys), *keys, self._reach.now(), queue.name, *arguments)
        return Written(
            what, keys[0], packed_command(words), "" if plain is None else name, plain is not None and before != ""
        )

    def _is_followed(self) -> bool:
        """Say whether another chunk may follow the next one: a single message has no name beside its id."""
        chunk, number = self._chunks[self._next], self._next + 1
        return len(chunk) > 1 and number < len(self._chunks) and self._chunks[number][0].queue == chunk[0].queue

    def _end_line(self) -> None:
        if self._line is not None:
            self._line.end()
            self._line = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._end_line()
