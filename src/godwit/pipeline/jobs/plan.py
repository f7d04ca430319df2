"""The plan: from a table of users to a campaign's messages in the store, for a rolling horizon.

Nothing is changed before the plan is whole: users that cannot be planned are written to a table of their own, a plan
that does not fit its rate is refused, and what many tasks staged is counted before it is applied.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import PurePath
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from godwit.core.clock import SYSTEM_CLOCK, Clock, from_ms
from godwit.core.envelope import seal
from godwit.core.errors import InvalidSetting, PlanTooDense, StagingLost, StoreRequired, listed
from godwit.core.message import Message
from godwit.core.names import QueueName
from godwit.pipeline.campaigns import Campaign, Horizon
from godwit.pipeline.failures import explained
from godwit.pipeline.session import LOCAL, spark_session
from godwit.pipeline.transforms.planning import checked, crowded, planned, rejected
from godwit.store.pipelines import new_run_id
from godwit.store.plans import Applied, Plan, Planned
from godwit.store.urls import connect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".orc": "orc"}
FULLEST: Final = 5
_PAYLOAD: Final = "payload goes here"
_PLANNED: Final = "planned"


class PlanSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan is told. `users` is a file, a folder or an address Spark can read."""

    campaign: Campaign
    horizon: Horizon
    users: str
    format: str | None = None
    rejects: str | None = None
    store_url: str | None = None
    master: str = LOCAL
    dry_run: bool = False


class PlanResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was planned and what it changed; `applied` is None when nothing was to be changed."""

    planned: int
    rejected: int
    reasons: dict[str, int]
    applied: Applied | None


def run_plan(settings: PlanSettings, *, clock: Clock = SYSTEM_CLOCK) -> PlanResult:
    """Plan a campaign and make the store's messages those of the plan."""
    if settings.store_url is None and not settings.dry_run:
        raise StoreRequired("A plan")
    with (
        spark_session(f"godwit plan {settings.campaign.name}", master=settings.master) as spark,
        explained(),
    ):
        return plan(spark, settings, clock=clock)


def plan(spark: SparkSession, settings: PlanSettings, *, clock: Clock = SYSTEM_CLOCK) -> PlanResult:
    """Do the same in a session that is there."""
    campaign, horizon = settings.campaign, settings.horizon
    users = read_users(spark, settings)
    candidates = checked(users, campaign)
    reasons = _reject(candidates, settings.rejects)
    messages = planned(candidates, campaign, horizon).persist()
    try:
        count = messages.count()
        _check_rate(messages, campaign)
        applied = None if settings.dry_run else _apply(messages, settings, count, clock)
    finally:
        messages.unpersist()
    return PlanResult(planned=count, rejected=sum(reasons.values()), reasons=reasons, applied=applied)


def read_users(spark: SparkSession, settings: PlanSettings) -> DataFrame:
    """Return the users' table; a column that the campaign names and it lacks is refused."""
    form = settings.format or FORMATS.get(PurePath(settings.users.rstrip("/")).suffix, "parquet")
    reader = spark.read.format(form)
    users = (reader.option("header", value=True) if form == "csv" else reader).load(settings.users)
    campaign = settings.campaign
    for name in (campaign.user_column, campaign.zone_column, campaign.date_column, *campaign.payload_columns):
        if name not in users.columns:
            raise InvalidSetting("column", name, f"columns of {settings.users} ({listed(tuple(users.columns))})")
    return users


def _reject(candidates: DataFrame, place: str | None) -> dict[str, int]:
    """Write down who cannot be planned; return how many by reason, without what is a single user's."""
    refused = rejected(candidates).persist()
    try:
        if place is not None:
            refused.write.mode("overwrite").parquet(place)
        counts: dict[str, int] = {}
        for row in refused.groupBy("reason").count().collect():
            reason = row["reason"].partition(": ")[0]
            counts[reason] = counts.get(reason, 0) + row["count"]
        return dict(sorted(counts.items()))
    finally:
        refused.unpersist()


def _check_rate(messages: DataFrame, campaign: Campaign) -> None:
    if campaign.max_per_minute is None:
        return
    full = crowded(messages, campaign).limit(FULLEST).collect()
    if full:
        raise PlanTooDense(
            campaign.name, campaign.max_per_minute, full[0]["messages"], f"{full[0]['minute']:%Y-%m-%d %H:%M} UTC"
        )


def _apply(messages: DataFrame, settings: PlanSettings, count: int, clock: Clock) -> Applied:
    campaign, horizon, url = settings.campaign, settings.horizon, settings.store_url or ""
    run_id = new_run_id(clock.now_ms(), secrets.token_hex(6))
    staging = messages.select("message_id", "key", "user", "occurrence", "deliver_at", "payload").mapInArrow(
        Staging(url, run_id, *template(campaign)), "staged long"
    )
    staged = sum(row["staged"] for row in staging.collect())

    whole = Plan(
        run_id=run_id,
        campaign=campaign.name,
        queue=QueueName(campaign.queue),
        start=horizon.start,
        end=horizon.end,
        messages=count,
    )
    if staged < count:
        raise StagingLost(run_id, count, staged)
    return asyncio.run(_apply_to(url, run_id, whole, clock))


async def _apply_to(url: str, run_id: str, whole: Plan, clock: Clock) -> Applied:
    async with connect(url) as store:
        try:
            return await store.plans.apply(whole, now=from_ms(clock.now_ms()))
        except BaseException:
            await store.plans.discard(run_id)
            raise


def template(campaign: Campaign) -> tuple[bytes, bytes]:
    """Return a campaign's message as JSON, as what stands before its payload and what behind."""
    # The same for every plan, so that planning again finds nothing changed; a scheduler gives it its id and time.
    message = Message(
        id=_PLANNED, queue=QueueName(campaign.queue), type=campaign.type, payload=_PAYLOAD, created_at=from_ms(0)
    )
    body = seal(message).body
    before, _, behind = body.partition(msgspec.json.encode(_PAYLOAD))
    return before, behind


class Staging:
    """Stages one partition of a plan; runs in Spark's Python workers."""

    def __init__(self, url: str, run_id: str, before: bytes, behind: bytes) -> None:
        self._url, self._run_id, self._before, self._behind = url, run_id, before, behind

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage all rows of the partition and say how many."""
        import pyarrow as pa

        staged = asyncio.run(self._stage(batches))
        yield pa.RecordBatch.from_pydict({"staged": pa.array([staged], pa.int64())})

    async def _stage(self, batches: Iterable[pa.RecordBatch]) -> int:
        async with connect(self._url) as store:
            return await store.plans.stage(self._run_id, self._messages(batches))

    def _messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Planned]:
        for batch in batches:
            columns = [column.to_pylist() for column in batch.columns]
            for message_id, key, user, occurrence, deliver_at, payload in zip(*columns, strict=True):
                body = self._before + _payload(user, occurrence, payload) + self._behind
                yield Planned(UUID(message_id), key, deliver_at, body)


def _payload(user: str, occurrence: date, chosen: str) -> bytes:
    """Return a message's payload: who, which day, and the columns that were chosen."""
    own = msgspec.json.encode({"user": user, "occurrence": occurrence.isoformat()})
    rest = chosen.encode()[1:]
    return own[:-1] + (b"," if rest != b"}" else b"") + rest
