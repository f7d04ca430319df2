"""The replay job: messages that a condition selects go back into a queue, each once, however often it runs."""

from __future__ import annotations

import math
import secrets
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.errors import BodiesMissing, InvalidSetting, QueueNotFound
from godwit.pipeline.lake.files import Lake
from godwit.pipeline.query.condition import Expression, parse
from godwit.pipeline.query.history import history
from godwit.pipeline.source.options import absolute_url
from godwit.pipeline.spark.connections import Connections
from godwit.pipeline.spark.errors import translate_errors
from godwit.pipeline.spark.session import LOCAL, spark_session
from godwit.pipeline.transforms.replay import COLUMNS, READ, one_of_each_message, replay_messages, select_copies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ReplaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a replay. `replay_id` makes reruns one replay; `per_second` spreads it over time."""

    broker_url: str
    store_url: str | None
    lake: str
    condition: str
    name: str = "default"
    replay_id: str | None = None
    queue: str | None = None
    per_second: float | None = None
    dry_run: bool = False
    master: str = LOCAL


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """The selected messages by queue, and the id of the replay; `seconds` is how long delivery is spread."""

    replay_id: str
    chosen: int
    queues: dict[str, int]
    seconds: int
    sent: bool


def run_replay(settings: ReplaySettings, *, clock: Clock = SYSTEM_CLOCK) -> ReplayResult:
    """Select messages from the lake and the journal behind it, and send them."""
    condition = check_settings(settings)
    with (
        Connections(settings.broker_url, settings.store_url, feature="A replay") as connections,
        spark_session("godwit replay", master=settings.master) as spark,
        translate_errors(),
    ):
        return replay_in_session(spark, connections, settings, condition, clock=clock)


def check_settings(settings: ReplaySettings) -> Expression:
    """Refuse settings that cannot work, before anything is started; return the condition."""
    if settings.per_second is not None and not settings.per_second > 0:
        raise InvalidSetting("rate", settings.per_second, "messages per second, more than 0")
    return parse(settings.condition, COLUMNS)


def replay_in_session(
    spark: SparkSession,
    connections: Connections,
    settings: ReplaySettings,
    condition: Expression,
    *,
    clock: Clock = SYSTEM_CLOCK,
) -> ReplayResult:
    """Replay in an open session."""
    declared = tuple(queue.name for queue in connections.broker(lambda broker: broker.stats()))
    if settings.queue is not None and settings.queue not in declared:
        raise QueueNotFound(settings.queue, declared)
    replay_id = settings.replay_id or f"replay-{secrets.token_hex(6)}"
    rows = history(spark, connections, Lake(settings.lake, settings.name), *READ)
    copies = select_copies(rows, condition)
    copies = (one_of_each_message(copies) if settings.queue is not None else copies).persist()
    try:
        by_queue = copies.groupBy("queue").agg(F.count("*").alias("n"), F.count("body").alias("whole")).collect()
        queues = {row["queue"]: row["n"] for row in sorted(by_queue, key=lambda row: str(row["queue"]))}
        chosen, whole = sum(queues.values()), sum(row["whole"] for row in by_queue)
        if whole < chosen:
            raise BodiesMissing(chosen - whole, chosen)
        seconds = math.ceil(chosen / settings.per_second) if settings.per_second else 0
        result = ReplayResult(
            replay_id=replay_id,
            chosen=chosen,
            queues=queues,
            seconds=seconds,
            sent=bool(chosen) and not settings.dry_run,
        )
        if result.sent:
            sent = replay_messages(
                copies, replay_id, start_ms=clock.now_ms(), window_ms=1_000 * seconds, queue=settings.queue
            )
            writer = sent.write.format("godwit").mode("append").option("url", absolute_url(settings.broker_url))
            writer.option("runId", replay_id).save()
        return result
    finally:
        copies.unpersist()
