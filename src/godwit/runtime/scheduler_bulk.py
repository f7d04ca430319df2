"""Campaigns: many messages, each with its key and time, prepared in batches as a store takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from godwit.core.clock import Clock
from godwit.core.envelope import Envelope
from godwit.core.errors import GodwitError, InvalidSchedule
from godwit.core.message import Message
from godwit.core.schedule import Firing, campaign_id
from godwit.core.schedule_rules import LONGEST_KEY, check_due, check_name

BATCH: Final = 10_000
CANCELLED_AT_ONCE: Final = 20_000

Row = tuple[str, datetime, Message]
"""The key that makes a message one of its campaign, when it is due, and the message."""

Progress = Callable[[int, int], None]
"""Gets how many rows were read and how many of them added, after each batch."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows there were, and how many of them were new."""

    read: int
    added: int


class _Line(msgspec.Struct):
    """A line of a campaign's file. What it does not say comes from the template."""

    key: str
    deliver_at: datetime
    payload: Any = msgspec.UNSET
    type: str | msgspec.UnsetType = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    attributes: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    ordering_key: str | msgspec.UnsetType = msgspec.UNSET


_lines = msgspec.json.Decoder(_Line)
_fields: Final = ("payload", "type", "priority", "attributes", "ordering_key")


def batches(
    campaign: str,
    rows: Iterable[Row],
    *,
    prepare: Callable[[Message], Envelope],
    clock: Clock,
    max_future: timedelta,
    size: int = BATCH,
) -> Iterator[list[Firing]]:
    """Return a campaign's firings in batches; a row that cannot be scheduled is named by its place."""
    numbered = enumerate(rows)
    while True:
        batch = []
        for number, (key, deliver_at, message) in islice(numbered, size):
            try:
                batch.append(_firing(campaign, key, deliver_at, prepare(message), clock.now_ms(), max_future))
            except GodwitError as error:
                error.add_note(f"It is row {number} of campaign {campaign!r}.")
                raise
        if not batch:
            return
        yield batch


def _firing(
    campaign: str, key: str, deliver_at: datetime, envelope: Envelope, now_ms: int, max_future: timedelta
) -> Firing:
    check_name("key", key, LONGEST_KEY)
    check_due(deliver_at, now_ms=now_ms, max_future=max_future)
    known = campaign_id(campaign, key)
    return Firing(
        id=known,
        queue=envelope.queue,
        message_id=str(known),
        fire_at=deliver_at,
        deliver_at=deliver_at,
        message=envelope.body,
        campaign=campaign,
        key=key,
    )


def rows_of(lines: Iterable[bytes], template: Message, *, source: str = "the file") -> Iterator[Row]:
    """Return the rows of JSON lines such as `{"key": "u1", "deliver_at": "2027-01-01T09:00:00Z", "payload": {}}`."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = _lines.decode(line)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise InvalidSchedule(
                f"line {number} of {source}",
                f"cannot be read ({error})",
                'Write objects with "key", "deliver_at" (with a zone) and what the message needs.',
            ) from None
        changes = {name: value for name in _fields if (value := getattr(found, name)) is not msgspec.UNSET}
        yield found.key, found.deliver_at, msgspec.structs.replace(template, **changes)


def rows_of_file(path: Path, template: Message) -> Iterator[Row]:
    """Return the rows of a file of JSON lines, read as they are needed."""
    with path.open("rb") as lines:
        yield from rows_of(lines, template, source=str(path))
