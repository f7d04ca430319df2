"""From rows that a condition chooses to messages that can be sent again.

A condition speaks of any row of the history (`event == "dead_lettered" && error_fingerprint == "..."`). What it chooses
stands for the copies those rows tell of; their messages come from the rows of their arrival, where the journal keeps
bodies.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from godwit.core.journal import Event
from godwit.pipeline.query.condition import Expression, Sort
from godwit.pipeline.transforms.condition_column import chosen
from godwit.pipeline.transforms.ids import uuid5

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS: Final[dict[str, Sort]] = {
    "queue": Sort.TEXT, "group": Sort.TEXT, "event": Sort.TEXT, "at": Sort.TIME, "worker": Sort.TEXT,
    "message_id": Sort.TEXT, "type": Sort.TEXT, "priority": Sort.NUMBER, "lane": Sort.NUMBER,
    "ordering_key": Sort.TEXT, "attempt": Sort.NUMBER, "failures": Sort.NUMBER, "crashes": Sort.NUMBER,
    "ready_at": Sort.TIME, "deliver_at": Sort.TIME, "expires_at": Sort.TIME, "wait_ms": Sort.NUMBER,
    "run_ms": Sort.NUMBER, "size": Sort.NUMBER, "error_kind": Sort.TEXT, "error_fingerprint": Sort.TEXT,
    "schedule_id": Sort.TEXT, "campaign": Sort.TEXT, "replay_of": Sort.TEXT,
}  # fmt: skip
"""What a condition may speak of."""
READ: Final = (*COLUMNS, "shard", "publish_seq", "copy", "body")
NAMESPACE: Final = uuid.UUID("1f6b9f0e-9a53-5c0e-8f0c-3f8a7f3f0d52")
_ARRIVALS: Final = (Event.ENQUEUED, Event.SCHEDULED, Event.REPLAYED)


def selected(rows: DataFrame, condition: Expression) -> DataFrame:
    """Return the copies that the chosen rows tell of: `shard, queue, group, publish_seq, message_id, body`.

    The body is null where the journal did not keep it, or holds the arrival no longer.
    """
    copies = (
        rows.where(chosen(condition) & F.col("publish_seq").isNotNull() & F.col("group").isNotNull())
        .select("shard", "queue", "group", "publish_seq")
        .distinct()
    )
    arrived = F.col("event").isin(*(event.value for event in _ARRIVALS))
    bodies = (
        rows.where(arrived & F.col("publish_seq").isNotNull())
        .groupBy("shard", "publish_seq")
        .agg(F.max("message_id").alias("message_id"), F.max("body").alias("body"))
    )
    return copies.join(bodies, ["shard", "publish_seq"], "left")


def messages(copies: DataFrame, replay_id: str, *, start_ms: int, window_ms: int, queue: str | None) -> DataFrame:
    """Return what is sent: `id, queue, group, replay_of, deliver_at, body`, spread over the window if there is one.

    The id follows from the replay, the message and the group, so that a replay sent twice arrives once. A message
    goes back to the group its copy belonged to; in another queue, to all groups there are.
    """
    namespace = uuid.uuid5(NAMESPACE, replay_id)
    known = F.concat(F.col("message_id"), F.lit("\0"), F.col("group"))
    later = F.pmod(F.xxhash64("message_id", "group"), F.lit(window_ms)) if window_ms else F.lit(None).cast("long")
    return copies.select(
        uuid5(namespace, known).alias("id"),
        (F.lit(queue) if queue else F.col("queue")).alias("queue"),
        (F.lit(None).cast("string") if queue else F.col("group")).alias("group"),
        F.col("message_id").alias("replay_of"),
        F.timestamp_millis(F.lit(start_ms) + later).alias("deliver_at"),
        "body",
    )
