"""The plan job: from a table of users to a campaign's messages in the store, for a rolling horizon.

Users that cannot be planned are written to a table of their own, and a plan that exceeds its rate is refused before
anything is changed. A campaign that has messages is changed as a whole: the messages that tasks staged are counted
before they are applied. A campaign without messages gets them straight from the tasks.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import AsyncExitStack
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, Self

import msgspec
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from godwit.core.clock import SYSTEM_CLOCK, Clock, from_ms
from godwit.core.errors import InvalidSetting, PlanTooDense, StoreRequired, listed
from godwit.core.names import QueueName
from godwit.pipeline.campaign.definition import Campaign, Horizon
from godwit.pipeline.campaign.plan_writer import PLANNED, PlanAdder, PlanStager, message_template
from godwit.pipeline.spark.errors import translate_errors
from godwit.pipeline.spark.session import LOCAL, spark_session
from godwit.pipeline.transforms.plan import crowded_minutes, plan_candidates, plan_messages, rejected_users
from godwit.store.pipelines import new_run_id
from godwit.store.plans import Applied, CampaignPlan
from godwit.store.urls import connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".orc": "orc"}
FULLEST: Final = 5
MOST_REASONS: Final = 100
OTHER_REASONS: Final = "other reasons"


class PlanSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a plan. `users` is a file, a folder or an address Spark can read."""

    campaign: Campaign
    horizon: Horizon
    users: str
    format: str | None = None
    rejects: str | None = None
    store_url: str | None = None
    master: str = LOCAL
    dry_run: bool = False


class PlanResult(msgspec.Struct, frozen=True, kw_only=True):
    """The planned messages and the changes made; `applied` is None in a dry run."""

    planned: int
    rejected: int
    reasons: dict[str, int]
    applied: Applied | None


def run_plan(settings: PlanSettings, *, clock: Clock = SYSTEM_CLOCK) -> PlanResult:
    """Plan a campaign and replace the store's messages with those of the plan."""
    if settings.store_url is None and not settings.dry_run:
        raise StoreRequired("A plan")
    with (
        spark_session(f"godwit plan {settings.campaign.name}", master=settings.master) as spark,
        translate_errors(),
    ):
        return plan_in_session(spark, settings, clock=clock)


def plan_in_session(spark: SparkSession, settings: PlanSettings, *, clock: Clock = SYSTEM_CLOCK) -> PlanResult:
    """Plan in an open session."""
    campaign, horizon = settings.campaign, settings.horizon
    candidates = plan_candidates(read_users(spark, settings), campaign)
    reasons = _write_rejected(candidates, settings.rejects)
    messages = plan_messages(candidates, campaign, horizon)
    with ReusedTable(messages) as kept:
        if campaign.max_per_minute is not None:
            _check_rate(kept.cached(), campaign)
        applied: Applied | None = None
        if settings.dry_run:
            count = messages.count()
        else:
            count, applied = _add_first_plan(messages, settings) or _replace_plan(messages, settings, clock)
    return PlanResult(planned=count, rejected=sum(reasons.values()), reasons=reasons, applied=applied)


class ReusedTable:
    """A table that Spark caches from its second use on, until the block ends."""

    def __init__(self, table: DataFrame) -> None:
        self._table, self._kept = table, False

    def cached(self) -> DataFrame:
        """Return the table, cached from now on."""
        if not self._kept:
            self._table.persist()
            self._kept = True
        return self._table

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._kept:
            self._table.unpersist()


def read_users(spark: SparkSession, settings: PlanSettings) -> DataFrame:
    """Return the users' table; refuse it when it lacks a column that the campaign names."""
    form = settings.format or FORMATS.get(PurePath(settings.users.rstrip("/")).suffix, "parquet")
    reader = spark.read.format(form)
    users = (reader.option("header", value=True) if form == "csv" else reader).load(settings.users)
    campaign = settings.campaign
    for name in (campaign.user_column, campaign.zone_column, campaign.date_column, *campaign.payload_columns):
        if name not in users.columns:
            raise InvalidSetting("column", name, f"columns of {settings.users} ({listed(tuple(users.columns))})")
    return users


def _write_rejected(candidates: DataFrame, path: str | None) -> dict[str, int]:
    """Write the rejected users to a table; return their number by reason, the most frequent reasons by name."""
    refused = rejected_users(candidates)
    with ReusedTable(refused) as kept:
        if path is not None:
            kept.cached().write.mode("overwrite").parquet(path)
        counts: dict[str, int] = {}
        # Shortened and limited by Spark: values of users may be as many as users.
        reasons = refused.select(F.split("reason", ": ")[0].alias("reason")).groupBy("reason").count()
        for row in reasons.orderBy(F.col("count").desc(), "reason").limit(MOST_REASONS).collect():
            counts[row["reason"]] = row["count"]
        if len(counts) == MOST_REASONS and (others := refused.count() - sum(counts.values())):
            counts[OTHER_REASONS] = others
    return dict(sorted(counts.items()))


def _check_rate(messages: DataFrame, campaign: Campaign) -> None:
    if campaign.max_per_minute is None:
        return
    full = crowded_minutes(messages, campaign).limit(FULLEST).collect()
    if full:
        raise PlanTooDense(
            campaign.name, campaign.max_per_minute, full[0]["messages"], f"{full[0]['minute']:%Y-%m-%d %H:%M} UTC"
        )


def _add_first_plan(messages: DataFrame, settings: PlanSettings) -> tuple[int, Applied] | None:
    """Add the messages of a campaign without messages, in one pass; None when it has some."""
    campaign, url = settings.campaign, settings.store_url or ""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        # In steps, because a loop that waited for Spark would not hear Ctrl-C.
        store = runner.run(stack.enter_async_context(connect(url)))
        try:
            if not runner.run(stack.enter_async_context(store.plans.alone(campaign.name))):
                return None
            count = _write_parts(
                messages, PlanAdder(url, campaign.name, QueueName(campaign.queue), message_template(campaign))
            )
        finally:
            runner.run(stack.aclose())
    return count, Applied(added=count, moved=0, cancelled=0)


def _replace_plan(messages: DataFrame, settings: PlanSettings, clock: Clock) -> tuple[int, Applied]:
    """Stage all messages, and apply them if as many are there as tasks have staged."""
    campaign, horizon, url = settings.campaign, settings.horizon, settings.store_url or ""
    run_id = new_run_id(clock.now_ms(), secrets.token_hex(6))
    count = _write_parts(messages, PlanStager(url, run_id, campaign.name, message_template(campaign)))
    whole = CampaignPlan(
        run_id=run_id,
        campaign=campaign.name,
        queue=QueueName(campaign.queue),
        start=horizon.start,
        end=horizon.end,
        messages=count,
    )
    return count, asyncio.run(_apply_to(url, run_id, whole, clock))


def _write_parts(messages: DataFrame, write: PlanAdder | PlanStager) -> int:
    """Let every task write its part; return the number of messages."""
    return sum(row["written"] for row in messages.select(*PLANNED).mapInArrow(write, "written long").collect())


async def _apply_to(url: str, run_id: str, whole: CampaignPlan, clock: Clock) -> Applied:
    async with connect(url) as store:
        try:
            return await store.plans.apply(whole, now=from_ms(clock.now_ms()))
        except BaseException:
            await store.plans.discard(run_id)
            raise
