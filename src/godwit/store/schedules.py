"""The port of schedules: rules that recur, firings that are due, campaigns of many.

Promises, checked by `tests/store/conformance`:

* a firing is stored once: its id is made from what asked for it, and putting it again adds nothing;
* a rule is advanced in the same transaction that stores its firings, by one scheduler at a time;
* a claimed firing belongs to its claimer until `lease` has passed; any other scheduler may then claim it again;
* a firing that is cancelled is never claimed, and one that may already be with the broker is given back to be
  cancelled there, until a scheduler notes that it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from threading import Event
from typing import Protocol
from uuid import UUID

import msgspec

from godwit.core.names import MessageId, QueueName
from godwit.core.schedule.schedules import Firing, Schedule, ScheduleStatus

Loading = tuple[str, str, QueueName, datetime, bytes]
"""A firing of a campaign on its way into the store: id, key, queue, due time, message."""


class LoadLeft(Exception):
    """The caller of a load has gone away; raised among its rows, where the load may stop."""


def until(left: Event, rows: Iterator[Loading]) -> Iterator[Loading]:
    """Return rows until the caller has gone away."""
    for row in rows:
        if left.is_set():
            raise LoadLeft
        yield row


class ScheduleAdvance(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at a rule leads to: its firings, and the rule as it stands then."""

    schedule: Schedule
    firings: tuple[Firing, ...] = ()


class Sent(msgspec.Struct, frozen=True):
    """A firing that may be with the broker although it is cancelled."""

    id: UUID
    queue: QueueName
    message_id: MessageId


class Voided(msgspec.Struct, frozen=True, kw_only=True):
    """Firings that will not come: `count` in all, of which `sent` may already be with the broker."""

    count: int
    sent: tuple[Sent, ...] = ()


class ScheduleBacklog(msgspec.Struct, frozen=True, kw_only=True):
    """Firings and rules whose time has come and that are not sent; `oldest` is the first of these times."""

    count: int
    oldest: datetime | None


class CampaignState(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign: how many firings were planned and cancelled in it, and how many still wait."""

    name: str
    status: ScheduleStatus
    planned: int
    cancelled: int
    waiting: int


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """How planned and actual times of firings compare; percentiles in milliseconds, None without firings."""

    fired: int
    cancelled: int
    late: int
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None
    max_ms: int | None


class Schedules(Protocol):
    """Keeps what is due later. Instants are aware; `now` is the caller's, so that a test can hold the clock."""

    # Rules

    async def add(self, schedule: Schedule) -> bool:
        """Store a new rule; False when its id is taken."""
        ...

    async def get(self, schedule_id: str) -> Schedule | None:
        """Return a rule."""
        ...

    async def page(
        self, *, after: str = "", limit: int = 100, status: ScheduleStatus | None = None, queue: str | None = None
    ) -> list[Schedule]:
        """Return rules by id."""
        ...

    async def change(self, schedule: Schedule, *, now: datetime) -> Voided | None:
        """Replace a rule whose version is one below `schedule.version`, and void its firings later than `now`.

        Returns None, and changes nothing, when the stored version is another.
        """
        ...

    async def plan(
        self, *, until: datetime, limit: int, decide: Callable[[Schedule], ScheduleAdvance], without: Sequence[str] = ()
    ) -> int:
        """Advance up to `limit` rules due by `until` that no other scheduler holds, and store their firings.

        Rules of the ids in `without` are passed over.

        `decide` is called inside the transaction and must do nothing but compute. Returns how many rules it was asked.
        """
        ...

    # Firings

    async def put(self, firings: Sequence[Firing]) -> int:
        """Store firings; return how many were new. One that fired before is not new."""
        ...

    async def find(self, firing_id: UUID) -> Firing | None:
        """Return a firing, also one that is over."""
        ...

    async def upcoming(self, *, limit: int = 100, schedule_id: str | None = None) -> list[Firing]:
        """Return firings not yet published by their time, without their messages."""
        ...

    async def move(self, firing_id: UUID, deliver_at: datetime) -> bool:
        """Give an unclaimed firing another time; False when there is none."""
        ...

    async def hold(self, firing_id: UUID, *, paused: bool) -> bool:
        """Pause an unclaimed firing, or let a paused one go on; False when there is none."""
        ...

    async def claim(self, *, now: datetime, until: datetime, limit: int, owner: str, lease: timedelta) -> list[Firing]:
        """Claim firings due by `until`, earliest first; those that other schedulers are claiming are passed over."""
        ...

    async def claim_again(self, *, now: datetime, limit: int, owner: str, lease: timedelta) -> list[Firing]:
        """Claim firings whose claim ran out before they were confirmed."""
        ...

    async def confirm(self, ids: Sequence[UUID], *, owner: str, now: datetime) -> set[UUID]:
        """Note that the broker has these firings; return those that were still claimed by `owner`."""
        ...

    async def release(
        self, ids: Sequence[UUID], *, owner: str, error: str | None = None, again_at: datetime | None = None
    ) -> None:
        """Give claimed firings back that the broker surely does not have: at once, or to be tried at a later time."""
        ...

    async def wake(self, *, now: datetime, limit: int) -> int:
        """Let firings that the broker refused be claimed again when their time has come."""
        ...

    async def void(self, ids: Sequence[UUID], *, now: datetime) -> Voided:
        """Cancel single firings."""
        ...

    async def cancelling(self, ids: Sequence[UUID] | None = None, *, now: datetime, limit: int = 1_000) -> list[Sent]:
        """Return cancelled firings that may be with the broker: these, or those whose claim has run out."""
        ...

    async def cancelled(self, ids: Sequence[UUID], *, now: datetime) -> None:
        """Note that the broker does not have these firings any more."""
        ...

    # Campaigns

    async def load(
        self, campaign: str, rows: Iterator[Loading], *, size: int, report: Callable[[int, int], None]
    ) -> int:
        """Store a campaign's firings, `size` of them a transaction; return how many were new.

        Rows are read in a thread, and only as they are stored. `report` gets (read, added) after each transaction.
        """
        ...

    async def campaign(self, name: str) -> CampaignState | None:
        """Return a campaign."""
        ...

    async def cancel_campaign(self, name: str, *, now: datetime, limit: int) -> Voided:
        """Cancel up to `limit` firings of a campaign, and let it take no more; call it until nothing is voided."""
        ...

    # Watching and cleaning

    async def backlog(self, *, now: datetime) -> ScheduleBacklog:
        """Say how much is overdue; counted up to 100,000."""
        ...

    async def lateness(
        self, *, schedule_id: str | None = None, campaign: str | None = None, since: datetime | None = None
    ) -> Lateness:
        """Compare planned and actual times of firings that are over."""
        ...

    async def prune(self, *, before: datetime) -> int:
        """Forget rules that ended and firings that were over before a time; return how many rules."""
        ...
