"""The journal rows of arriving copies, made from runs: when they are written without bodies, or read with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from godwit.brokers.sqlite.layout.runs import (
    BODY,
    CAMPAIGN,
    DELIVER_AT,
    EXPIRY,
    GROUP,
    ID,
    KEY,
    LANE,
    PRIORITY,
    READY_AT,
    REPLAY_OF,
    SCHEDULE_ID,
    SEQ,
    SIZE,
    TYPE,
    Message,
)
from godwit.core.journal.chunks import encode_chunk
from godwit.core.journal.vocabulary import Event

Recipe = tuple[str, str, str, int, int, int, int | None, list[int], list[int]]
"""Event, queue, group, depth, copy, copies, lane of keyed messages (None: their own), runs, publish_seqs left out."""

decode_recipe = msgspec.msgpack.Decoder(Recipe).decode


def arrival_row(message: Message, copy: int, copies: int, ordered_lane: int | None, *, body: bool) -> tuple[Any, ...]:
    """Return one row; an addressed message has a single copy."""
    addressed = message[GROUP] is not None
    keyed = ordered_lane is not None and message[KEY] is not None
    return (
        message[ID], message[SEQ], 0 if addressed else copy, 1 if addressed else copies, message[TYPE],
        message[PRIORITY], ordered_lane if keyed else message[LANE], message[KEY], message[READY_AT],
        message[DELIVER_AT], message[EXPIRY], message[SIZE], message[SCHEDULE_ID], message[CAMPAIGN],
        message[REPLAY_OF], message[BODY] if body else None,
    )  # fmt: skip


def arrival_rows(
    runs: Sequence[list[Message]],
    group: str,
    copy: int,
    copies: int,
    ordered_lane: int | None,
    dropped: Collection[int],
    *,
    body: bool,
) -> list[tuple[Any, ...]]:
    """Return the rows of all copies in these runs that came to a group, in publish order."""
    rows = [
        arrival_row(message, copy, copies, ordered_lane, body=body)
        for messages in runs
        for message in messages
        if message[GROUP] in (None, group) and message[SEQ] not in dropped
    ]
    if len(runs) > 1:
        rows.sort(key=lambda row: row[1])
    return rows


def cook(recipe: bytes, epoch: str, last_seq: int, at: int, read: Callable[[int], list[Message]]) -> bytes:
    """Return the chunk a recipe stands for."""
    event, queue, group, depth, copy, copies, lane, runs, dropped = decode_recipe(recipe)
    rows = arrival_rows([read(run) for run in runs], group, copy, copies, lane, dropped, body=True)
    return encode_chunk(epoch, last_seq - len(rows) + 1, at, Event(event), queue, group, None, depth, rows)
