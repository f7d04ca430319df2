"""The port of plans: a campaign's messages within a horizon, made to be exactly those of the newest plan.

A plan is staged by many writers under a run's id, counted, and then applied: what is new is added, what moved is moved
while it is unclaimed, and what is no longer planned is cancelled. Applying it again changes nothing.

The first plan of a campaign has nothing to move or cancel: its writers add their parts at once. One that is left in
the middle leaves messages that are planned, and the next plan finds a campaign that has some.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import msgspec

from godwit.core.errors import StagingLost
from godwit.core.names import QueueName

if TYPE_CHECKING:
    import pyarrow as pa


class CampaignPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What was staged under a run's id, and what it replaces: the campaign's messages from `start` to `end`."""

    run_id: str
    campaign: str
    queue: QueueName
    start: datetime
    end: datetime
    messages: int


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan changed; the rest of it was as planned before, or is on its way."""

    added: int
    moved: int
    cancelled: int


class Plans(Protocol):
    """Keeps campaigns as they are planned.

    Messages come in batches of Arrow whose columns are `id` (a UUID as text, made from campaign and key), `key`,
    `deliver_at` and `message`.
    """

    def alone(self, campaign: str) -> AbstractAsyncContextManager[bool]:
        """Begin a plan; give whether the campaign has had no message yet, so that parts may be added at once.

        Where many machines can plan, others who begin or apply a plan of it wait until this one has ended. Raises
        `InvalidSchedule` when the campaign was cancelled.
        """
        ...

    async def add(self, campaign: str, queue: QueueName, parts: Iterable[pa.RecordBatch]) -> int:
        """Add messages of a campaign's first plan, in steps; return how many they are. Those that are there stay.

        Raises `InvalidSchedule` when the campaign was cancelled meanwhile.
        """
        ...

    async def stage(self, run_id: str, parts: Iterable[pa.RecordBatch]) -> int:
        """Keep a part of a plan, as a whole or not at all; return how many messages it has.

        A part that is staged again counts once.
        """
        ...

    async def apply(self, plan: CampaignPlan, *, now: datetime) -> Applied:
        """Make the campaign what was staged. What may already be with the broker is left to a scheduler to cancel.

        Raises `StagingLost`, and changes nothing, when not exactly `plan.messages` are staged.
        """
        ...

    async def discard(self, run_id: str) -> None:
        """Forget what was staged under an id, and what runs staged more than a day before it."""
        ...


def check_plan(plan: CampaignPlan, found: int) -> None:
    """Refuse a plan that is not staged as a whole."""
    if found != plan.messages:
        raise StagingLost(plan.run_id, plan.messages, found)
