"""Campaigns: many messages, each with its key and time, prepared as a store takes them; and their cancellation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from godwit.core.clock import Clock, from_ms
from godwit.core.errors import GodwitError, InvalidSchedule, ScheduleNotFound
from godwit.core.messages.envelope import Envelope
from godwit.core.messages.message import Message
from godwit.core.schedule.rules import LONGEST_KEY, check_due, check_expiry, check_name
from godwit.core.schedule.schedules import campaign_ids
from godwit.core.settings import SchedulerSettings
from godwit.runtime.scheduler.sender import Sender
from godwit.store.schedules import CampaignState, Loading, Schedules, Voided

BATCH: Final = 20_000
"""Rows of one transaction: a load that is stopped loses no more than these."""
CLOCK_EVERY: Final = 1_000
"""Rows that are checked against the same time of day."""
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


class Campaigns:
    """Loads campaigns into the store, cancels what is left of them, and knows how they stand."""

    def __init__(
        self,
        schedules: Schedules,
        sender: Sender,
        *,
        prepare: Callable[[Message], Envelope],
        settings: SchedulerSettings,
        clock: Clock,
    ) -> None:
        self._schedules, self._sender, self._prepare = schedules, sender, prepare
        self._settings, self._clock = settings, clock

    async def load(self, name: str, rows: Iterable[Row], *, progress: Progress | None = None) -> Loaded:
        """Store a campaign's rows and say how many there were and how many of them were new."""
        check_name("campaign", name)
        read = 0

        def report(count: int, added: int) -> None:
            nonlocal read
            read = count
            if progress is not None:
                progress(count, added)

        max_future = self._settings.max_future
        wanted = prepared(name, rows, prepare=self._prepare, clock=self._clock, max_future=max_future)
        added = await self._schedules.load(name, wanted, size=BATCH, report=report)
        return Loaded(read=read, added=added)

    async def cancel(self, name: str) -> int:
        """Cancel everything of a campaign that has not been delivered, and let it take no more; return how many."""
        count = 0
        while (voided := await self._void(name)).count:
            count += voided.count
            await self._sender.take_back(voided.sent, for_good=False)
        return count

    async def state(self, name: str) -> CampaignState:
        """Return how a campaign stands; raises `ScheduleNotFound`."""
        found = await self._schedules.campaign(name)
        if found is None:
            raise ScheduleNotFound(name)
        return found

    async def _void(self, name: str) -> Voided:
        now = from_ms(self._clock.now_ms())
        return await self._schedules.cancel_campaign(name, now=now, limit=CANCELLED_AT_ONCE)


def prepared(
    campaign: str,
    rows: Iterable[Row],
    *,
    prepare: Callable[[Message], Envelope],
    clock: Clock,
    max_future: timedelta,
) -> Iterator[Loading]:
    """Return a campaign's firings as they are asked for; a row that cannot be scheduled is named by its place."""
    id_of = campaign_ids(check_name("campaign", campaign))
    for number, (key, deliver_at, message) in enumerate(rows):
        if number % CLOCK_EVERY == 0:
            now_ms = clock.now_ms()
            first, last = from_ms(now_ms), from_ms(now_ms) + max_future
        try:
            if not _is_fine(key, deliver_at, first, last):
                check_name("key", key, LONGEST_KEY)
                check_due(deliver_at, now_ms=now_ms, max_future=max_future)
            if message.expires_at is not None:
                check_expiry(message.expires_at, deliver_at)
            envelope = prepare(message)
        except GodwitError as error:
            error.add_note(f"It is row {number} of campaign {campaign!r}.")
            raise
        yield id_of(key), key, envelope.queue, deliver_at, envelope.body


def _is_fine(key: str, deliver_at: datetime, first: datetime, last: datetime) -> bool:
    """Say quickly that a row is as it should be; the slow checks say what is wrong."""
    try:
        return 0 < len(key) <= LONGEST_KEY and key.isprintable() and first <= deliver_at <= last
    except (TypeError, AttributeError):  # among others, a time without a zone cannot be compared
        return False


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
