"""The five tables of the notification specification, as written there, and each difference with its reason."""

from __future__ import annotations

from typing import Final

Column = tuple[str, bool, str | None]
"""Type, whether it may be NULL, default; in PostgreSQL's own words."""

UUID: Final[Column] = ("uuid", False, "gen_random_uuid()")
NAME: Final[Column] = ("character varying(255)", False, None)
TIMESTAMP: Final[Column] = ("timestamp without time zone", True, "now()")
STATUS: Final[Column] = ("character varying(20)", False, "'active'::character varying")
ZERO: Final[Column] = ("integer", True, "0")
JSONB: Final[Column] = ("jsonb", False, None)

SEED: Final[dict[str, dict[str, Column]]] = {
    "message_queues": {
        "id": UUID,
        "name": NAME,
        "type": ("character varying(50)", False, None),
        "priority": ("integer", False, "0"),
        "configuration": JSONB,
        "status": STATUS,
        "created_at": TIMESTAMP,
        "updated_at": TIMESTAMP,
    },
    "queue_messages": {
        "id": UUID,
        "queue_name": NAME,
        "message_id": NAME,
        "type": ("character varying(100)", False, None),
        "priority": ("integer", False, "0"),
        "payload": JSONB,
        "metadata": JSONB,
        "status": ("character varying(20)", False, "'pending'::character varying"),
        "retry_count": ZERO,
        "max_retries": ("integer", True, "3"),
        "scheduled_at": ("timestamp without time zone", True, None),
        "processed_at": ("timestamp without time zone", True, None),
        "expires_at": ("timestamp without time zone", True, None),
        "created_at": TIMESTAMP,
        "updated_at": TIMESTAMP,
    },
    "consumer_groups": {
        "id": UUID,
        "name": NAME,
        "queue_name": NAME,
        "configuration": JSONB,
        "status": STATUS,
        "created_at": TIMESTAMP,
        "updated_at": TIMESTAMP,
    },
    "consumer_instances": {
        "id": UUID,
        "consumer_group_id": ("uuid", False, None),
        "instance_id": NAME,
        "status": STATUS,
        "last_heartbeat": TIMESTAMP,
        "processed_count": ZERO,
        "error_count": ZERO,
        "average_processing_time_ms": ZERO,
        "created_at": TIMESTAMP,
        "updated_at": TIMESTAMP,
    },
    "queue_analytics": {
        "id": UUID,
        "date": ("date", False, None),
        "queue_name": NAME,
        "consumer_group": ("character varying(255)", True, None),
        "messages_enqueued": ZERO,
        "messages_processed": ZERO,
        "messages_failed": ZERO,
        "average_processing_time_ms": ZERO,
        "peak_queue_depth": ZERO,
        "throughput_per_minute": ("numeric(10,2)", True, "0"),
        "created_at": TIMESTAMP,
    },
}

UNIQUE: Final[dict[str, set[tuple[str, ...]]]] = {
    "message_queues": {("id",), ("name",)},
    "queue_messages": {("id",), ("message_id",)},
    "consumer_groups": {("id",), ("name", "queue_name")},
    "consumer_instances": {("id",)},
    "queue_analytics": {("id",), ("date", "queue_name", "consumer_group")},
}
FOREIGN: Final = {("consumer_instances", "consumer_group_id", "consumer_groups", "id")}
INDEXES: Final = {
    "idx_message_queues_type": "message_queues (type)",
    "idx_message_queues_priority": "message_queues (priority)",
    "idx_queue_messages_queue_name": "queue_messages (queue_name)",
    "idx_queue_messages_status": "queue_messages (status)",
    "idx_queue_messages_scheduled_at": "queue_messages (scheduled_at)",
    "idx_queue_messages_priority": "queue_messages (priority DESC)",
    "idx_consumer_instances_group_id": "consumer_instances (consumer_group_id)",
    "idx_consumer_instances_status": "consumer_instances (status)",
    "idx_queue_analytics_unique": "queue_analytics (date, queue_name, consumer_group)",
}

TIMES_HAVE_ZONES: Final = "an instant without a zone means another instant on every server"
CHANGED: Final[dict[tuple[str, str], str]] = {
    ("consumer_instances", "processed_count"): "bigint: an instance may handle more than 2,147,483,647 messages",
    ("consumer_instances", "error_count"): "bigint: as processed_count",
}
ADDED: Final[dict[tuple[str, str], str]] = {
    ("queue_messages", "ended_as"): "how the worst of the copies that have ended ended, so that history is not asked",
    ("consumer_instances", "processing_time_sum_ms"): "an average alone cannot be added to",
    ("queue_analytics", "updated_at"): "a day is written many times",
    ("queue_analytics", "messages_retried"): "retries are not failures",
    ("queue_analytics", "messages_expired"): "expired messages are counted apart",
    ("queue_analytics", "messages_delivered"): "the share of redeliveries needs it",
    ("queue_analytics", "processing_time_sum_ms"): "an average alone cannot be added to",
    ("queue_analytics", "processing_time_count"): "as processing_time_sum_ms",
    ("queue_analytics", "wait_time_sum_ms"): "waiting is not processing",
    ("queue_analytics", "wait_time_count"): "as wait_time_sum_ms",
    ("queue_analytics", "minutes_covered"): "throughput is per minute that the journal covers",
    ("queue_analytics", "covered_from"): "from when on the journal tells of that day",
    ("queue_analytics", "covered_until"): "until when the journal tells of that day",
}
ADDED_UNIQUE: Final[dict[tuple[str, ...], str]] = {
    ("consumer_instances", "consumer_group_id", "instance_id"): "one row per instance, whoever writes it",
}
OTHER_DIFFERENCES: Final = {
    "idx_queue_analytics_unique is NULLS NOT DISTINCT": "rows of the whole queue have no group, and are unique too",
    "consumer_instances go with their group (ON DELETE CASCADE)": "a removed group leaves no orphans",
    "finished messages are in queue_messages_history": "message_id cannot be unique in a table partitioned by time",
}
