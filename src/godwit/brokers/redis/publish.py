"""Publishing: chunks of a queue in one script call each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from godwit.brokers.chunks import addresses, publish_chunks
from godwit.brokers.contract import Receipt
from godwit.brokers.redis.catalog import STALE, Catalog, Known
from godwit.brokers.redis.encoding import (
    LONG_ROW,
    PLAIN_ROW,
    blob,
    lane_of,
    ordered_lane,
    packed,
    row_end,
    row_lineage,
    row_middle,
)
from godwit.brokers.redis.link import Argument
from godwit.brokers.redis.reach import Reach
from godwit.brokers.redis.replies import Refused
from godwit.core.envelope import Envelope
from godwit.core.errors import GodwitError, PartialPublish, QueueFull

_DIGITS: Final = tuple("0123456789")


class Publisher:
    """Puts messages on the server."""

    def __init__(self, reach: Reach, catalog: Catalog) -> None:
        self._reach, self._catalog = reach, catalog

    async def publish(self, envelopes: Sequence[Envelope]) -> list[Receipt]:
        """Check everything, then store chunk by chunk."""
        for name, group in addresses(envelopes):
            queue = await self._catalog.find(name)
            if group is not None and group not in queue.groups:
                (await self._catalog.ask(name)).group(group)
        receipts: list[Receipt] = []
        for chunk in publish_chunks(envelopes):
            try:
                receipts += await self.accept(chunk)
            except GodwitError as error:
                if not receipts:
                    raise
                raise PartialPublish(tuple(receipt.id for receipt in receipts), str(error)) from error
        return receipts

    async def accept(
        self,
        chunk: Sequence[Envelope],
        *,
        mode: str = "",
        tickets: Sequence[str] = (),
        dead: frozenset[int] = frozenset(),
    ) -> list[Receipt]:
        """Store one chunk of one queue; `mode`, `tickets` and `dead` are those of `publish.lua`."""
        queue = await self._catalog.find(chunk[0].queue)
        while True:
            arguments = (*encode_chunk(queue, chunk, mode, dead), *tickets)
            # Ids are remembered: a chunk sent again after a lost reply is recognised, where there is a window.
            again = bool(mode or queue.limits[3])
            try:
                answer = await self._reach.run("publish", queue.name, queue.keys, arguments, again=again)
            except Refused as error:
                raise full_server(queue) from error
            if answer[0] == STALE:
                queue = await self._catalog.ask(queue.name)
                for envelope in chunk:
                    if envelope.group is not None:
                        queue.group(envelope.group)
                continue
            if answer[0] == b"full":
                raise over_limit(queue, answer)
            if len(answer) == 1:
                return [Receipt(envelope.id, True) for envelope in chunk]  # noqa: FBT003
            repeated = set(answer[1:])
            return [Receipt(envelope.id, index not in repeated) for index, envelope in enumerate(chunk, 1)]


def full_server(queue: Known) -> QueueFull:
    """Return the error for a server that has no memory left."""
    return QueueFull(queue.name, ", ".join(queue.groups), "the server's maxmemory", 0)


def over_limit(queue: Known, answer: Sequence[Any]) -> QueueFull:
    """Return the error for a group that is full."""
    limit = answer[2].decode()
    return QueueFull(queue.name, answer[1].decode(), limit, getattr(queue.spec, limit) or 0)


def encode_chunk(queue: Known, chunk: Sequence[Envelope], mode: str, dead: frozenset[int]) -> list[Argument]:
    """Return a chunk as `publish.lua` takes it."""
    lanes_there = queue.spec.lanes
    ordered, numbers, ttl_ms, moved = queue.ordered, queue.numbers, queue.ttl_ms, mode == "moved"
    odd: list[tuple[int, int, int, int, int]] = []
    lanes: list[str] = []
    middles: list[bytes] = []
    ends: list[bytes] = []
    ordered_middles: list[bytes] = []
    long_rows = queue.keeps_body
    for index, envelope in enumerate(chunk, 1):
        key, deliver_ms = envelope.ordering_key, envelope.deliver_at_ms
        expiry_ms = 0 if moved else envelope.expiry_ms(ttl_ms)
        lane = lane_of(envelope.priority, lanes_there)
        lanes.append(_DIGITS[lane])
        middles.append(row_middle(envelope.type, envelope.priority, lane, key))
        ends.append(row_end(deliver_ms, expiry_ms or None, envelope.size))
        keyed = ordered and key is not None
        if deliver_ms is not None or expiry_ms or keyed or envelope.group is not None or dead:
            number = numbers[envelope.group] if envelope.group is not None else 0
            odd.append((index, deliver_ms or 0, expiry_ms, number, int(index in dead)))
        ordered_middles.append(
            row_middle(envelope.type, envelope.priority, ordered_lane(lanes_there), key) if keyed else b""
        )
        if envelope.schedule_id or envelope.campaign or envelope.replay_of:
            long_rows = True
    if long_rows:
        keeps_body = queue.keeps_body
        ends = [end + row_lineage(one, body=keeps_body) for end, one in zip(ends, chunk, strict=True)]
    lanes.append(_DIGITS[ordered_lane(lanes_there)])
    return [
        queue.version, mode, len(chunk), len(queue.groups), *queue.limits, LONG_ROW if long_rows else PLAIN_ROW,
        "".join(lanes), packed(odd) if odd else b"", packed([envelope.size for envelope in chunk]), *queue.names,
        *[envelope.id for envelope in chunk], *map(blob, chunk), *middles, *ends, *ordered_middles,
    ]  # fmt: skip
