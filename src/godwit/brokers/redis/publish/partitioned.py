"""Publishing to a queue of several partitions: each message to its own, all of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any, Final, Protocol

from godwit.brokers.contract import PUBLISH_CHUNK, Receipt
from godwit.brokers.redis.layout.catalog import Catalog
from godwit.brokers.redis.layout.partitions import by_path
from godwit.brokers.redis.layout.queue_config import QueueConfig
from godwit.core.errors import GodwitError, PartialPublish
from godwit.core.messages.envelope import Envelope


class StoreChunk(Protocol):
    """Stores messages in one partition; see `Publisher`."""

    async def __call__(
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
        """Return the script's answer, or None when the messages belong elsewhere by now."""
        ...


Parts = dict[tuple[int, ...], list[int]]
"""Places in the chunk by the partitions to try."""
Quickly = Callable[[Sequence[tuple[QueueConfig, Sequence[Envelope]]]], Awaitable[list[bool]]]
"""Stores messages in several partitions at once; says which it has stored, all of them new."""
FEW: Final = 100
"""Messages that are sent together; more are encoded while the servers work."""


class PartitionedPublish:
    """Messages on their way to several partitions, in chunks of which each is stored whole or not at all."""

    def __init__(
        self,
        store: StoreChunk,
        store_quickly: Quickly,
        catalog: Catalog,
        chunk: Sequence[Envelope],
        mode: str,
        tickets: Sequence[str],
        dead: frozenset[int],
        replicas: int | None,
    ) -> None:
        self._store, self._store_quickly, self._catalog, self._chunk = store, store_quickly, catalog, chunk
        self._mode, self._tickets, self._dead, self._replicas = mode, tickets, dead, replicas
        self._fresh: dict[int, bool] = {}
        """What has been accepted, by its place in the chunk, and whether it was new."""

    async def publish(self, queue: QueueConfig) -> list[Receipt]:
        """Store everything; when a part fails, name those accepted up to the first message that was not.

        Callers go on after the last one named, so what other partitions took beyond it is not named. It is recognised
        by its id when it is published again.
        """
        problem = await self._send(queue, range(len(self._chunk)))
        if problem is not None:
            accepted = tuple(
                envelope.id for _, envelope in takewhile(lambda one: one[0] in self._fresh, enumerate(self._chunk))
            )
            if not accepted or not isinstance(problem, GodwitError):
                raise problem
            raise PartialPublish(accepted, str(problem)) from problem
        return [Receipt(envelope.id, self._fresh[index]) for index, envelope in enumerate(self._chunk)]

    async def _send(self, queue: QueueConfig, indexes: Iterable[int]) -> BaseException | None:
        parts = by_path(self._chunk, indexes, queue.spec)
        waits = queue.spec.min_replicas if self._replicas is None else self._replicas
        if len(self._chunk) <= FEW and not (waits or self._mode or self._dead):
            parts = await self._quickly(queue, parts)
            if not parts:
                return None
        sent = [self._in_order(queue, path, part) for path, part in parts.items()]
        results = await asyncio.gather(*sent, return_exceptions=True)
        return next((result for result in results if result is not None), None)

    async def _quickly(self, queue: QueueConfig, parts: Parts) -> Parts:
        """Store a few messages with one command per partition, sent together to each server; return what is left."""
        direct = [path for path in parts if len(path) == 1]
        chunk = self._chunk
        stored = await self._store_quickly(
            [(queue.at(path[0]), [chunk[index] for index in parts[path]]) for path in direct]
        )
        for path, done in zip(direct, stored, strict=True):
            if done:
                self._fresh.update(dict.fromkeys(parts.pop(path), True))
        return parts

    async def _in_order(self, queue: QueueConfig, path: tuple[int, ...], indexes: list[int]) -> BaseException | None:
        """Send what goes one way in chunks, one after the other."""
        for start in range(0, len(indexes), PUBLISH_CHUNK):
            problem = await self._along(queue, path, indexes[start : start + PUBLISH_CHUNK])
            if problem is not None:
                return problem
        return None

    async def _along(self, queue: QueueConfig, path: tuple[int, ...], indexes: list[int]) -> BaseException | None:
        """Try the partitions of a path, one after the other; the last takes what is left."""
        for partition in path:
            if not indexes:
                break
            follow = partition != path[-1]
            answer = await self._store(
                queue.at(partition),
                [self._chunk[index] for index in indexes],
                mode=self._mode,
                tickets=[self._tickets[index] for index in indexes] if self._tickets else (),
                dead=frozenset(place for place, index in enumerate(indexes, 1) if index + 1 in self._dead),
                follow=follow,
                replicas=self._replicas,
            )
            if answer is None:
                return await self._send(await self._catalog.ask(queue.name), indexes)
            indexes = self._take(indexes, answer)
        return None

    def _take(self, indexes: list[int], answer: Sequence[Any]) -> list[int]:
        """Note what was accepted; return what is to be tried elsewhere."""
        repeated, left = set(answer[1:]), set[int]()
        if answer[0] == b"part":
            count = answer[1]
            repeated, left = set(answer[2 : 2 + count]), set(answer[2 + count :])
        for place, index in enumerate(indexes, 1):
            if place not in left:
                self._fresh[index] = place not in repeated
        return [index for place, index in enumerate(indexes, 1) if place in left]
