"""The journal rows of arriving copies, made from runs: when they are written without bodies, or read with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

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
    MARKS,
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
from godwit.core.journal.rows import JournalRow, arrival_row
from godwit.core.journal.vocabulary import Event

NO_MARKS: Final = (None, None)


class Recipe(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How the rows of a chunk of arrivals are made. `lane` is that of keyed messages (None: their own)."""

    event: str
    queue: str
    group: str
    depth: int
    copy: int
    copies: int
    lane: int | None
    runs: list[int]
    dropped: list[int]
    """The publish_seqs that are left out."""
    app_version: str | None = None


decode_recipe = msgspec.msgpack.Decoder(Recipe).decode


def arrival_rows(
    runs: Sequence[list[Message]],
    group: str,
    copy: int,
    copies: int,
    ordered_lane: int | None,
    dropped: Collection[int],
    *,
    body: bool,
) -> list[JournalRow]:
    """Return the rows of all copies in these runs that came to a group, in publish order.

    An addressed message has a single copy.
    """
    rows = []
    for messages in runs:
        for message in messages:
            addressed, key, lane = message[GROUP], message[KEY], message[LANE]
            if (addressed is not None and addressed != group) or message[SEQ] in dropped:
                continue
            which, of = (copy, copies) if addressed is None else (0, 1)
            correlation_id, attributes = NO_MARKS if len(message) == MARKS else message[MARKS:]
            rows.append(
                arrival_row(
                    message[ID], message[SEQ], which, of, message[TYPE], message[PRIORITY],
                    lane if ordered_lane is None or key is None else ordered_lane, key, message[READY_AT],
                    message[DELIVER_AT], message[EXPIRY], message[SIZE], message[SCHEDULE_ID], message[CAMPAIGN],
                    message[REPLAY_OF], message[BODY] if body else None, correlation_id,
                    attributes,
                )
            )  # fmt: skip
    if len(runs) > 1:
        rows.sort(key=lambda row: row[1])
    return rows


def cook(recipe: bytes, epoch: str, last_seq: int, at: int, read: Callable[[int], list[Message]]) -> bytes:
    """Return the chunk a recipe stands for."""
    made = decode_recipe(recipe)
    runs = [read(run) for run in made.runs]
    rows = arrival_rows(runs, made.group, made.copy, made.copies, made.lane, made.dropped, body=True)
    first, event = last_seq - len(rows) + 1, Event(made.event)
    return encode_chunk(
        epoch, first, at, event, made.queue, made.group, None, made.depth, rows, app_version=made.app_version
    )
