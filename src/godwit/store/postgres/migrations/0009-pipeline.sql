-- What makes a pipeline's results count once: its position, the files it published, what waits to be added.

CREATE TABLE pipeline_position (
    pipeline VARCHAR(255) NOT NULL,
    shard VARCHAR(300) NOT NULL,
    epoch TEXT NOT NULL,
    seq BIGINT NOT NULL,
    at TIMESTAMPTZ,
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, shard)
);

-- A file of the lake counts while it is listed and not `removed_at`; compaction swaps rows in one transaction.
CREATE TABLE lake_manifest (
    path TEXT PRIMARY KEY,
    pipeline VARCHAR(255) NOT NULL,
    dataset VARCHAR(40) NOT NULL,
    day DATE NOT NULL,
    row_count BIGINT NOT NULL,
    byte_count BIGINT NOT NULL,
    first_seq BIGINT,
    last_seq BIGINT,
    run_id VARCHAR(64) NOT NULL,
    added_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    removed_at TIMESTAMPTZ
);
CREATE INDEX idx_lake_manifest_live ON lake_manifest (pipeline, dataset, day) WHERE removed_at IS NULL;

-- Written by many tasks, then counted and added in one transaction; a crash empties them, and the batch runs again.
CREATE UNLOGGED TABLE staging_analytics_minute (
    run_id VARCHAR(64) NOT NULL,
    LIKE queue_analytics_minute
);
CREATE INDEX idx_staging_analytics_minute_run ON staging_analytics_minute (run_id);
CREATE UNLOGGED TABLE staging_analytics_histogram (
    run_id VARCHAR(64) NOT NULL,
    LIKE queue_analytics_histogram
);
CREATE INDEX idx_staging_analytics_histogram_run ON staging_analytics_histogram (run_id);
