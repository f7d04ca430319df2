"""Turns rows that a condition selects into messages that can be sent again.

A condition applies to any row of the history (`event == "dead_lettered" && error_fingerprint == "..."`). A selected row
stands for its copy; the copy's message comes from the row of its arrival, where the journal keeps bodies.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from godwit.core.journal.lifecycle import BIRTHS
from godwit.pipeline.query.condition import ColumnKind, Expression
from godwit.pipeline.transforms.condition_column import condition_column
from godwit.pipeline.transforms.ids import uuid5

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXT, _NUMBER, _TIME = ColumnKind.TEXT, ColumnKind.NUMBER, ColumnKind.TIME
COLUMNS: Final[dict[str, ColumnKind]] = {
    "queue": _TEXT, "group": _TEXT, "event": _TEXT, "at": _TIME, "worker": _TEXT,
    "message_id": _TEXT, "type": _TEXT, "priority": _NUMBER, "lane": _NUMBER,
    "ordering_key": _TEXT, "attempt": _NUMBER, "failures": _NUMBER, "crashes": _NUMBER,
    "ready_at": _TIME, "deliver_at": _TIME, "expires_at": _TIME, "wait_ms": _NUMBER,
    "run_ms": _NUMBER, "size": _NUMBER, "error_kind": _TEXT, "error_fingerprint": _TEXT,
    "schedule_id": _TEXT, "campaign": _TEXT, "replay_of": _TEXT,
}  # fmt: skip
"""The columns that a condition may name."""
READ: Final = (*COLUMNS, "shard", "epoch", "publish_seq", "copy", "body")
_MESSAGE: Final = ["shard", "epoch", "publish_seq"]
NAMESPACE: Final = uuid.UUID("1f6b9f0e-9a53-5c0e-8f0c-3f8a7f3f0d52")


def select_copies(rows: DataFrame, condition: Expression) -> DataFrame:
    """Return the copies of the selected rows: `shard, epoch, queue, group, publish_seq, message_id, body`.

    Another epoch is another journal: its numbers are those of other messages. The body is null where the journal did
    not keep it, or no longer holds the arrival.
    """
    copies = (
        rows.where(condition_column(condition) & F.col("publish_seq").isNotNull() & F.col("group").isNotNull())
        .select(*_MESSAGE, "queue", "group")
        .distinct()
    )
    arrived = F.col("event").isin(*(event.value for event in BIRTHS))
    bodies = (
        rows.where(arrived & F.col("publish_seq").isNotNull())
        .groupBy(*_MESSAGE)
        .agg(F.max("message_id").alias("message_id"), F.max("body").alias("body"))
    )
    return copies.join(bodies, _MESSAGE, "left")


def one_of_each_message(copies: DataFrame) -> DataFrame:
    """Return one copy of each message: in another queue, a message goes to all groups there are."""
    return copies.dropDuplicates(_MESSAGE).withColumn("group", F.lit(None).cast("string"))


def replay_messages(
    copies: DataFrame, replay_id: str, *, start_ms: int, window_ms: int, queue: str | None
) -> DataFrame:
    """Return the messages to send: `id, queue, group, replay_of, deliver_at, body`, spread over the window if any.

    The id derives from the replay, the message and the group, so that a replay sent twice arrives once. A message goes
    back to the group of its copy, or to all groups where a copy has none.
    """
    namespace = uuid.uuid5(NAMESPACE, replay_id)
    known = F.concat(F.col("message_id"), F.lit("\0"), F.coalesce("group", F.lit("")))
    later = F.pmod(F.xxhash64("message_id", "group"), F.lit(window_ms)) if window_ms else F.lit(None).cast("long")
    return copies.select(
        uuid5(namespace, known).alias("id"),
        (F.lit(queue) if queue else F.col("queue")).alias("queue"),
        "group",
        F.col("message_id").alias("replay_of"),
        F.timestamp_millis(F.lit(start_ms) + later).alias("deliver_at"),
        "body",
    )
