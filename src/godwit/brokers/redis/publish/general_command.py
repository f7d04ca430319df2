"""Messages as `publish.lua` takes them: it looks at each of them, whatever they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from godwit.brokers.redis.client.connection import Argument
from godwit.brokers.redis.layout.codec import (
    ROW_BEGINS,
    blob,
    lane_of,
    lineage_of,
    mark,
    ordered_lane,
    packed,
    row_end,
    row_lineage,
    row_middle,
)
from godwit.brokers.redis.layout.queue_config import QueueConfig
from godwit.brokers.redis.publish.fast_command import Call
from godwit.core.messages.envelope import Envelope

_DIGITS: Final = tuple("0123456789")


def encode_chunk(
    queue: QueueConfig, chunk: Sequence[Envelope], mode: str, dead: frozenset[int], *, follow: bool = False
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
    lineages = [lineage_of(envelope, body=queue.keeps_body) for envelope in chunk]
    longest = max(map(len, lineages))
    if longest:
        ends = [end + row_lineage(lineage, longest) for end, lineage in zip(ends, lineages, strict=True)]
    lanes.append(_DIGITS[ordered_lane(lanes_there)])
    ids = [envelope.id for envelope in chunk]
    words = f"{'twice' if len(set(ids)) < len(ids) else ''}{'follow' if follow else ''}"
    return [
        queue.version, mode, len(chunk), len(queue.groups), *queue.limits, total, "".join(lanes), bytes(codes),
        packed(odd) if odd else b"", words, ROW_BEGINS[longest],
        len(middles) + len(ordered_middles), len(middles), packed(expiries) if any(expiries) else b"",
        queue.app_version or "", *queue.names,
        *(row_middle(kind, priority, lane_of(priority, lanes_there), key) for kind, priority, key in middles),
        *(row_middle(kind, priority, ordered_lane(lanes_there), key) for kind, priority, key in ordered_middles),
        *ids, *map(mark, ids), *map(blob, chunk), *ends,
    ]  # fmt: skip


def general_publish_command(
    queue: QueueConfig,
    chunk: Sequence[Envelope],
    mode: str = "",
    tickets: Sequence[str] = (),
    dead: frozenset[int] = frozenset(),
    *,
    follow: bool = False,
) -> Call:
    """Return the way to store a chunk that looks at each message."""
    return "publish", queue.keys, [*encode_chunk(queue, chunk, mode, dead, follow=follow), *tickets]
