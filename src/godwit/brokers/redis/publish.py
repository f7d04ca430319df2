"""Publishing: chunks of a queue in one script call each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from godwit.brokers.chunks import addresses, publish_chunks
from godwit.brokers.contract import Receipt
from godwit.brokers.redis.arrivals import EACH, STORED, encode_many, encode_one, is_plain
from godwit.brokers.redis.arrivals import STALE as OLD
from godwit.brokers.redis.catalog import STALE, Catalog, Known
from godwit.brokers.redis.encoding import (
    LONG_ROW,
    PLAIN_ROW,
    blob,
    lane_of,
    mark,
    ordered_lane,
    packed,
    row_end,
    row_lineage,
    row_middle,
)
from godwit.brokers.redis.link import Argument
from godwit.brokers.redis.reach import REPLICAS_MS, Reach
from godwit.brokers.redis.replies import Refused
from godwit.brokers.redis.spreading import Spread
from godwit.core.envelope import Envelope
from godwit.core.errors import GodwitError, NotReplicated, PartialPublish, QueueFull
from godwit.core.names import MessageId

_DIGITS: Final = tuple("0123456789")
ALL_STORED: Final = (b"ok",)
"""The answer to messages that are all new."""


Call = tuple[str, Sequence[str], Sequence[Argument]]
"""A script, its keys and its arguments."""


class Publisher:
    """Puts messages on the server."""

    def __init__(self, reach: Reach, catalog: Catalog) -> None:
        self._reach, self._catalog = reach, catalog
        self._ahead: tuple[Known, Sequence[Envelope], Call] | None = None
        """The next chunk of a publish, encoded while the one before it was stored."""

    async def publish(self, envelopes: Sequence[Envelope]) -> list[Receipt]:
        """Check everything, then store chunk by chunk."""
        for name, group in addresses(envelopes):
            queue = self._catalog.known(name) or await self._catalog.ask(name)
            if group is not None and group not in queue.groups:
                (await self._catalog.ask(name)).group(group)
        if len(envelopes) == 1:
            return await self.accept(envelopes)
        receipts: list[Receipt] = []
        chunks = list(self._chunks(envelopes))
        if len(chunks) == 1:
            return await self.accept(chunks[0])
        for place, chunk in enumerate(chunks):
            storing = asyncio.ensure_future(self.accept(chunk))
            await asyncio.sleep(0)  # it is on its way: while the server works, make the next one ready
            if place + 1 < len(chunks):
                self._ahead = await self._encoded(chunks[place + 1])
            try:
                receipts += await storing
            except GodwitError as error:
                if not receipts:
                    raise
                cause = error.__cause__ if isinstance(error, PartialPublish) else error
                raise partial([receipt.id for receipt in receipts], error) from cause
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

    async def _encoded(self, chunk: Sequence[Envelope]) -> tuple[Known, Sequence[Envelope], Call] | None:
        queue = await self._catalog.find(chunk[0].queue)
        if queue.spec.partitions > 1:
            return None
        return queue, chunk, plain_call(queue, chunk) or careful_call(queue, chunk)

    async def accept(
        self,
        chunk: Sequence[Envelope],
        *,
        mode: str = "",
        tickets: Sequence[str] = (),
        dead: frozenset[int] = frozenset(),
    ) -> list[Receipt]:
        """Store one chunk of one queue; `mode`, `tickets` and `dead` are those of `publish.lua`."""
        queue = self._catalog.known(chunk[0].queue) or await self._catalog.ask(chunk[0].queue)
        if queue.spec.partitions == 1:
            answer = await self._store(queue, chunk, mode=mode, tickets=tickets, dead=dead)
            if answer is ALL_STORED:
                return [Receipt(envelope.id, True) for envelope in chunk]  # noqa: FBT003
            if answer is not None:
                repeated = set(answer[1:])
                return [Receipt(envelope.id, index not in repeated) for index, envelope in enumerate(chunk, 1)]
            queue = await self._catalog.find(queue.name)  # it has grown meanwhile
        return await Spread(self._store, self._store_quickly, self._catalog, chunk, mode, tickets, dead).publish(queue)

    async def _store(
        self,
        queue: Known,
        chunk: Sequence[Envelope],
        *,
        mode: str = "",
        tickets: Sequence[str] = (),
        dead: frozenset[int] = frozenset(),
        follow: bool = False,
    ) -> Sequence[Any] | None:
        """Store messages in one partition; return the script's answer, or None when they belong elsewhere by now.

        With `follow` only what the partition has something of: see `partitions.py`.
        """
        ahead, self._ahead = self._ahead, None
        fast = not (mode or dead or follow)
        while True:
            if ahead is not None and ahead[0] is queue and ahead[1] is chunk:
                call: Call | None = ahead[2]
                ahead = None
            else:
                call = plain_call(queue, chunk) if fast else None
            script, names, arguments = call or careful_call(queue, chunk, mode, tickets, dead, follow=follow)
            # Ids are remembered: a chunk sent again after a lost reply is recognised, where there is a window.
            again = bool(mode or queue.limits[3])
            try:
                answer = await self._run(queue, script, names, arguments, again=again)
            except Refused as error:
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

    async def _store_quickly(self, parts: Sequence[tuple[Known, Sequence[Envelope]]]) -> list[bool]:
        """Store messages in several partitions, one round trip to each server; say which parts are stored, all new.

        Whatever is not so simple is left to `_store`, which tells what is wrong; ids make sending twice safe.
        """
        queue = parts[0][0] if parts else None
        if queue is None or queue.spec.min_replicas or not queue.limits[3]:
            return [False] * len(parts)
        calls = [plain_call(at, chunk) for at, chunk in parts]
        asked = [(queue.name, call[1], call[2]) for call in calls if call is not None]
        try:
            answers = iter(await self._reach.run_each("arrive", asked))
        except (GodwitError, Refused):
            return [False] * len(parts)
        return [call is not None and next(answers) == STORED for call in calls]

    async def _run(
        self, queue: Known, script: str, names: Sequence[str], arguments: Sequence[Argument], *, again: bool
    ) -> Any:
        replicas = queue.spec.min_replicas
        if not replicas:
            return await self._reach.run(script, queue.name, names, arguments, again=again)
        answer, reached = await self._reach.run_replicated(
            script, queue.name, names, arguments, again=again, replicas=replicas
        )
        if reached < replicas and is_stored(answer):
            raise NotReplicated(queue.name, replicas, reached, REPLICAS_MS / 1000)
        return answer


def is_stored(answer: Any) -> bool:
    """Say whether a script's answer means that it stored something."""
    return answer == STORED if isinstance(answer, int) else answer[0] not in {STALE, b"full"}


def partial(accepted: Sequence[MessageId], error: GodwitError) -> PartialPublish:
    """Return the error for a publish of which a part was accepted before it failed."""
    if isinstance(error, PartialPublish):
        return PartialPublish((*accepted, *error.accepted), error.cause)
    return PartialPublish(tuple(accepted), str(error))


def plain_call(queue: Known, chunk: Sequence[Envelope]) -> Call | None:
    """Return the fast way to store a chunk, when there is one."""
    if not queue.groups:
        return None
    if len(chunk) > 1:
        encoded = encode_many(queue, chunk)
    else:
        encoded = encode_one(queue, chunk[0]) if is_plain(queue, chunk[0]) else None
    return None if encoded is None else ("arrive", *encoded)


def careful_call(
    queue: Known,
    chunk: Sequence[Envelope],
    mode: str = "",
    tickets: Sequence[str] = (),
    dead: frozenset[int] = frozenset(),
    *,
    follow: bool = False,
) -> Call:
    """Return the way to store a chunk that looks at each message."""
    return "publish", queue.keys, [*encode_chunk(queue, chunk, mode, dead, follow=follow), *tickets]


def full_server(queue: Known) -> QueueFull:
    """Return the error for a server that has no memory left."""
    return QueueFull(queue.name, ", ".join(queue.groups), "the server's maxmemory", 0)


def over_limit(queue: Known, answer: Sequence[Any]) -> QueueFull:
    """Return the error for a group that is full."""
    limit = answer[2].decode()
    return QueueFull(queue.name, answer[1].decode(), limit, getattr(queue.spec, limit) or 0)


def encode_chunk(
    queue: Known, chunk: Sequence[Envelope], mode: str, dead: frozenset[int], *, follow: bool = False
) -> list[Argument]:
    """Return a chunk as `publish.lua` takes it."""
    lanes_there, ordered, ttl_ms, moved = queue.spec.lanes, queue.ordered, queue.ttl_ms, mode == "moved"
    odd: list[tuple[int, int, int, int, int, int]] = []
    expiries: list[int] = []
    lanes: list[str] = []
    middles: dict[tuple[str, int, str | None], int] = {}
    ordered_middles: dict[tuple[str, int, str | None], int] = {}
    codes = bytearray()
    ends: list[bytes] = []
    total = 0
    long_rows = queue.keeps_body
    for index, envelope in enumerate(chunk, 1):
        key, deliver_ms, priority, size = (
            envelope.ordering_key, envelope.deliver_at_ms, envelope.priority, envelope.size,
        )  # fmt: skip
        expiry_ms = 0 if moved or not (ttl_ms or envelope.expires_at_ms) else envelope.expiry_ms(ttl_ms)
        expiries.append(expiry_ms)
        lanes.append(_DIGITS[lane_of(priority, lanes_there)])
        codes.append(middles.setdefault((envelope.type, priority, key), len(middles) + 1))
        ends.append(row_end(deliver_ms, expiry_ms or None, size))
        total += size
        keyed = ordered and key is not None
        if deliver_ms is not None or keyed or envelope.group is not None or dead:
            number = queue.numbers[envelope.group] if envelope.group is not None else 0
            middle = (
                ordered_middles.setdefault((envelope.type, priority, key), len(ordered_middles) + 1) if keyed else 0
            )
            odd.append((index, deliver_ms or 0, expiry_ms, number, int(index in dead), middle))
        if envelope.schedule_id or envelope.campaign or envelope.replay_of:
            long_rows = True
    if long_rows:
        keeps_body = queue.keeps_body
        ends = [end + row_lineage(one, body=keeps_body) for end, one in zip(ends, chunk, strict=True)]
    lanes.append(_DIGITS[ordered_lane(lanes_there)])
    ids = [envelope.id for envelope in chunk]
    words = f"{'twice' if len(set(ids)) < len(ids) else ''}{'follow' if follow else ''}"
    return [
        queue.version, mode, len(chunk), len(queue.groups), *queue.limits, total, "".join(lanes), bytes(codes),
        packed(odd) if odd else b"", words, LONG_ROW if long_rows else PLAIN_ROW,
        len(middles) + len(ordered_middles), len(middles), packed(expiries) if any(expiries) else b"", *queue.names,
        *(row_middle(kind, priority, lane_of(priority, lanes_there), key) for kind, priority, key in middles),
        *(row_middle(kind, priority, ordered_lane(lanes_there), key) for kind, priority, key in ordered_middles),
        *ids, *map(mark, ids), *map(blob, chunk), *ends,
    ]  # fmt: skip
