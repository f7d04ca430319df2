-- Numbers that only ever add up: a late batch is added like any other.
-- Unique indexes take a missing group as '', which no group can be called.

-- The sums stand beside the seed's averages: a day is the sum of its minutes.
CREATE TABLE queue_analytics (
    id TEXT PRIMARY KEY DEFAULT (lower(hex(randomblob(16)))),
    date TEXT NOT NULL,
    queue_name TEXT NOT NULL,
    consumer_group TEXT,
    messages_enqueued INTEGER DEFAULT 0,
    messages_processed INTEGER DEFAULT 0,
    messages_failed INTEGER DEFAULT 0,
    average_processing_time_ms INTEGER DEFAULT 0,
    peak_queue_depth INTEGER DEFAULT 0,
    throughput_per_minute REAL DEFAULT 0,
    created_at INTEGER DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    updated_at INTEGER DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    messages_retried INTEGER NOT NULL DEFAULT 0,
    messages_expired INTEGER NOT NULL DEFAULT 0,
    messages_delivered INTEGER NOT NULL DEFAULT 0,
    processing_time_sum_ms INTEGER NOT NULL DEFAULT 0,
    processing_time_count INTEGER NOT NULL DEFAULT 0,
    wait_time_sum_ms INTEGER NOT NULL DEFAULT 0,
    wait_time_count INTEGER NOT NULL DEFAULT 0,
    minutes_covered INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX idx_queue_analytics_unique ON queue_analytics (date, queue_name, ifnull(consumer_group, ''));

CREATE TABLE queue_analytics_minute (
    minute INTEGER NOT NULL,
    queue_name TEXT NOT NULL,
    consumer_group TEXT,
    messages_enqueued INTEGER NOT NULL DEFAULT 0,
    messages_processed INTEGER NOT NULL DEFAULT 0,
    messages_failed INTEGER NOT NULL DEFAULT 0,
    messages_retried INTEGER NOT NULL DEFAULT 0,
    messages_expired INTEGER NOT NULL DEFAULT 0,
    messages_delivered INTEGER NOT NULL DEFAULT 0,
    processing_time_sum_ms INTEGER NOT NULL DEFAULT 0,
    processing_time_count INTEGER NOT NULL DEFAULT 0,
    wait_time_sum_ms INTEGER NOT NULL DEFAULT 0,
    wait_time_count INTEGER NOT NULL DEFAULT 0,
    peak_queue_depth INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX idx_queue_analytics_minute_unique
    ON queue_analytics_minute (minute, queue_name, ifnull(consumer_group, ''));

-- n values of `metric` (processing_ms, wait_ms, ...) in a bucket whose bounds grow by 2 %.
CREATE TABLE queue_analytics_histogram (
    minute INTEGER NOT NULL,
    queue_name TEXT NOT NULL,
    consumer_group TEXT,
    metric TEXT NOT NULL,
    bucket INTEGER NOT NULL,
    n INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX idx_queue_analytics_histogram_unique
    ON queue_analytics_histogram (minute, queue_name, ifnull(consumer_group, ''), metric, bucket);
