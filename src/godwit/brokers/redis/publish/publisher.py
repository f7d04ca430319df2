"""Publishing: chunks of a queue in one script call each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, TypeGuard

from godwit.brokers.arguments import check_replicas
from godwit.brokers.chunks import addresses, publish_chunks
from godwit.brokers.contract import Receipt
from godwit.brokers.redis.client.connection import Argument
from godwit.brokers.redis.client.errors import LinkLost
from godwit.brokers.redis.client.script_runner import REPLICAS_MS, ScriptRunner
from godwit.brokers.redis.client.scripts import script
from godwit.brokers.redis.layout.catalog import STALE, Catalog
from godwit.brokers.redis.layout.queue_config import QueueConfig
from godwit.brokers.redis.publish.fast_command import EACH, STORED, fast_publish_command, is_plain, packed_one
from godwit.brokers.redis.publish.fast_command import STALE as OLD
from godwit.brokers.redis.publish.general_command import general_publish_command
from godwit.brokers.redis.publish.partitioned import PartitionedPublish
from godwit.brokers.redis.publish.pipelined import PipelinedPublish
from godwit.brokers.redis.url import ServerAddress
from godwit.core.errors import GodwitError, NotReplicated, PartialPublish, QueueFull, StorageFull
from godwit.core.messages.envelope import Envelope
from godwit.core.names import MessageId

ARRIVE_ONE: Final = script("arrive_one")
ALL_STORED: Final = (b"ok",)
"""The answer to messages that are all new."""


class RedisPublisher:
    """Puts messages on the server."""

    def __init__(self, reach: ScriptRunner, catalog: Catalog) -> None:
        self._reach, self._catalog = reach, catalog

    async def publish(self, envelopes: Sequence[Envelope], *, replicas: int | None = None) -> list[Receipt]:
        """Check everything, then store chunk by chunk; `replicas` counts instead of the queue's `min_replicas`."""
        if len(envelopes) == 1 and replicas is None:
            envelope = envelopes[0]
            known = self._catalog.known(envelope.queue)
            if known is not None and known.alone and is_plain(known, envelope):
                # Nearly always that is all: one script call. Whatever it does not answer with is for the long way.
                command, window = packed_one(known, envelope, self._reach.now()), known.limits[3] > 0
                if await self._reach.run_packed(ARRIVE_ONE, known.keys[0], command, again=window) == STORED:
                    return [Receipt(envelope.id, True)]  # noqa: FBT003
        check_replicas(replicas)
        for name, group in addresses(envelopes):
            queue = self._catalog.known(name) or await self._catalog.ask(name)
            if group is not None and group not in queue.groups:
                (await self._catalog.ask(name)).group(group)
        if len(envelopes) == 1:
            return await self.accept(envelopes, replicas=replicas)
        chunks = list(self._chunks(envelopes))
        if len(chunks) == 1:
            return await self.accept(chunks[0], replicas=replicas)
        return await self._in_turn(chunks, replicas) if chunks else []

    async def _in_turn(self, chunks: list[Sequence[Envelope]], replicas: int | None) -> list[Receipt]:
        """Store chunks one after the other; while the server works on one, the next is on its way to it."""
        receipts: list[Receipt] = []
        with PipelinedPublish(self._reach, self._catalog, chunks, replicas) as turns:
            for chunk in chunks:
                answer = await turns.answer()
                try:
                    if answer == STORED:
                        given = answered(chunk, ALL_STORED)
                    elif is_ok(answer):
                        given = answered(chunk, answer)
                    else:
                        # Nothing was stored, or the outcome is unknown: ids make sending it again safe.
                        given = await self.accept(chunk, replicas=replicas)
                except GodwitError as error:
                    if not receipts:
                        raise
                    cause = error.__cause__ if isinstance(error, PartialPublish) else error
                    raise partial([receipt.id for receipt in receipts], error) from cause
                receipts += given
        return receipts

    def _chunks(self, envelopes: Sequence[Envelope]) -> Iterator[Sequence[Envelope]]:
        """Split a publish; what goes to a queue of several partitions is split again when each part is known."""
        if not self._catalog.some_partitioned:
            yield from publish_chunks(envelopes)
            return
        for _, run in groupby(envelopes, key=attrgetter("queue")):
            messages = list(run)
            if self._catalog.partitions_of(messages[0].queue) > 1:
                yield messages
            else:
                yield from publish_chunks(messages)

    async def accept(
        self,
        chunk: Sequence[Envelope],
        *,
        mode: str = "",
        tickets: Sequence[str] = (),
        dead: frozenset[int] = frozenset(),
        replicas: int | None = None,
    ) -> list[Receipt]:
        """Store one chunk of one queue; `mode`, `tickets` and `dead` are those of `publish.lua`."""
        queue = self._catalog.known(chunk[0].queue) or await self._catalog.ask(chunk[0].queue)
        if queue.spec.partitions == 1:
            answer = await self._store(queue, chunk, mode=mode, tickets=tickets, dead=dead, replicas=replicas)
            if answer is not None:
                return answered(chunk, answer)
            queue = await self._catalog.find(queue.name)  # it has grown meanwhile
        spread = PartitionedPublish(
            self._store, self._store_quickly, self._catalog, chunk, mode, tickets, dead, replicas
        )
        return await spread.publish(queue)

    async def _store(
        self,
        queue: QueueConfig,
        chunk: Sequence[Envelope],
        *,
        mode: str = "",
        tickets: Sequence[str] = (),
        dead: frozenset[int] = frozenset(),
        follow: bool = False,
        replicas: int | None = None,
    ) -> Sequence[Any] | None:
        """Store messages in one partition; return the script's answer, or None when they belong elsewhere by now.

        With `follow` only what the partition has something of: see `partitions.py`.
        """
        fast = not (mode or dead or follow)
        while True:
            call = fast_publish_command(queue, chunk) if fast else None
            name, names, arguments = call or general_publish_command(queue, chunk, mode, tickets, dead, follow=follow)
            # Ids are remembered: a chunk sent again after a lost reply is recognised, where there is a window.
            again = bool(mode or queue.limits[3])
            try:
                answer = await self._run(queue, name, names, arguments, again=again, replicas=replicas)
            except StorageFull as error:
                raise full_server(queue) from error
            if answer == STORED:
                return ALL_STORED
            if answer == EACH:
                fast = False
                continue
            if answer == OLD or answer[0] == STALE:
                if (newer := await self._catalog.newer(queue)) is None:
                    return None
                queue = newer
                for envelope in chunk:
                    if envelope.group is not None:
                        queue.group(envelope.group)
                continue
            if answer[0] == b"full":
                raise over_limit(queue, answer)
            found: Sequence[Any] = answer
            return found

    async def _store_quickly(self, parts: Sequence[tuple[QueueConfig, Sequence[Envelope]]]) -> list[bool]:
        """Store messages in several partitions, one round trip to each server; say which parts are stored, all new.

        A server works while the messages for the next one are encoded. Whatever is not so simple is left to `_store`,
        which tells what is wrong; ids make sending twice safe.
        """
        stored = [False] * len(parts)
        queue = parts[0][0] if parts else None
        if queue is None or not queue.limits[3]:
            return stored
        by_place: dict[ServerAddress, list[int]] = {}
        for number, (at, _) in enumerate(parts):
            if (place := self._reach.place_of(at.keys[0])) is not None:
                by_place.setdefault(place, []).append(number)
        under_way = [(numbers, self._send(queue, place, numbers, parts)) for place, numbers in by_place.items()]
        for numbers, replies in under_way:
            if replies is not None:
                with suppress(LinkLost):
                    for number, reply in zip(numbers, await replies, strict=True):
                        stored[number] = reply == STORED
        return stored

    def _send(
        self,
        queue: QueueConfig,
        place: ServerAddress,
        numbers: list[int],
        parts: Sequence[tuple[QueueConfig, Sequence[Envelope]]],
    ) -> asyncio.Future[list[Any]] | None:
        """Send to one server what goes there; leave in `numbers` what was sent."""
        calls = {number: call for number in numbers if (call := fast_publish_command(*parts[number])) is not None}
        numbers[:] = calls
        if not calls:
            return None
        return self._reach.begin("arrive", place, [(queue.name, call[1], call[2]) for call in calls.values()])

    async def _run(
        self,
        queue: QueueConfig,
        name: str,
        names: Sequence[str],
        arguments: Sequence[Argument],
        *,
        again: bool,
        replicas: int | None,
    ) -> Any:
        if replicas is None:
            replicas = queue.spec.min_replicas
        if not replicas:
            return await self._reach.run(name, queue.name, names, arguments, again=again)
        answer, reached = await self._reach.run_replicated(
            name, queue.name, names, arguments, again=again, replicas=replicas
        )
        if reached < replicas and is_stored(answer):
            raise NotReplicated(queue.name, replicas, reached, REPLICAS_MS / 1000)
        return answer


def is_ok(answer: Any) -> TypeGuard[list[Any]]:
    """Say whether an answer is that of `publish.lua` when it has stored all that is new."""
    return isinstance(answer, list) and answer[0] == ALL_STORED[0]


def answered(chunk: Sequence[Envelope], answer: Sequence[Any]) -> list[Receipt]:
    """Return the receipts for a chunk by the indexes of repetitions that a script named."""
    if len(answer) == 1:
        return [Receipt(envelope.id, True) for envelope in chunk]  # noqa: FBT003
    repeated = set(answer[1:])
    return [Receipt(envelope.id, index not in repeated) for index, envelope in enumerate(chunk, 1)]


def is_stored(answer: Any) -> bool:
    """Say whether a script's answer means that it stored something."""
    return answer == STORED if isinstance(answer, int) else answer[0] not in {STALE, b"full"}


def partial(accepted: Sequence[MessageId], error: GodwitError) -> PartialPublish:
    """Return the error for a publish of which a part was accepted before it failed."""
    if isinstance(error, PartialPublish):
        return PartialPublish((*accepted, *error.accepted), error.cause)
    return PartialPublish(tuple(accepted), str(error))


def full_server(queue: QueueConfig) -> QueueFull:
    """Return the error for a server that has no memory left."""
    return QueueFull(queue.name, ", ".join(queue.groups), "the server's maxmemory", 0)


def over_limit(queue: QueueConfig, answer: Sequence[Any]) -> QueueFull:
    """Return the error for a group that is full."""
    limit = answer[2].decode()
    return QueueFull(queue.name, answer[1].decode(), limit, getattr(queue.spec, limit) or 0)
