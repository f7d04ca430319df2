-- What makes a pipeline's results count once: its position, the files it published, what waits to be added.

CREATE TABLE pipeline_position (
    pipeline TEXT NOT NULL,
    shard TEXT NOT NULL,
    epoch TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER,
    updated_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    PRIMARY KEY (pipeline, shard)
) STRICT, WITHOUT ROWID;

-- A file of the lake counts while it is listed and not `removed_at`; compaction swaps rows in one transaction.
CREATE TABLE lake_manifest (
    path TEXT PRIMARY KEY,
    pipeline TEXT NOT NULL,
    dataset TEXT NOT NULL,
    day TEXT NOT NULL,
    row_count INTEGER NOT NULL,
    byte_count INTEGER NOT NULL,
    first_seq INTEGER,
    last_seq INTEGER,
    run_id TEXT NOT NULL,
    added_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    removed_at INTEGER
) STRICT;
CREATE INDEX idx_lake_manifest_live ON lake_manifest (pipeline, dataset, day) WHERE removed_at IS NULL;

-- Written by many tasks, then counted and added in one transaction.
CREATE TABLE staging_analytics_minute (
    run_id TEXT NOT NULL,
    minute INTEGER NOT NULL,
    queue_name TEXT NOT NULL,
    consumer_group TEXT,
    messages_enqueued INTEGER NOT NULL,
    messages_processed INTEGER NOT NULL,
    messages_failed INTEGER NOT NULL,
    messages_retried INTEGER NOT NULL,
    messages_expired INTEGER NOT NULL,
    messages_delivered INTEGER NOT NULL,
    processing_time_sum_ms INTEGER NOT NULL,
    processing_time_count INTEGER NOT NULL,
    wait_time_sum_ms INTEGER NOT NULL,
    wait_time_count INTEGER NOT NULL,
    peak_queue_depth INTEGER NOT NULL
) STRICT;
CREATE INDEX idx_staging_analytics_minute_run ON staging_analytics_minute (run_id);
CREATE TABLE staging_analytics_histogram (
    run_id TEXT NOT NULL,
    minute INTEGER NOT NULL,
    queue_name TEXT NOT NULL,
    consumer_group TEXT,
    metric TEXT NOT NULL,
    bucket INTEGER NOT NULL,
    n INTEGER NOT NULL
) STRICT;
CREATE INDEX idx_staging_analytics_histogram_run ON staging_analytics_histogram (run_id);
