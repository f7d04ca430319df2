-- Numbers that only ever add up: a late batch is added like any other.

-- The sums stand beside the seed's averages: a day is the sum of its minutes.
CREATE TABLE queue_analytics (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    date DATE NOT NULL,
    queue_name VARCHAR(255) NOT NULL,
    consumer_group VARCHAR(255),
    messages_enqueued INTEGER DEFAULT 0,
    messages_processed INTEGER DEFAULT 0,
    messages_failed INTEGER DEFAULT 0,
    average_processing_time_ms INTEGER DEFAULT 0,
    peak_queue_depth INTEGER DEFAULT 0,
    throughput_per_minute DECIMAL(10, 2) DEFAULT 0,
    created_at TIMESTAMPTZ DEFAULT now(),
    updated_at TIMESTAMPTZ DEFAULT now(),
    messages_retried BIGINT NOT NULL DEFAULT 0,
    messages_expired BIGINT NOT NULL DEFAULT 0,
    messages_delivered BIGINT NOT NULL DEFAULT 0,
    processing_time_sum_ms BIGINT NOT NULL DEFAULT 0,
    processing_time_count BIGINT NOT NULL DEFAULT 0,
    wait_time_sum_ms BIGINT NOT NULL DEFAULT 0,
    wait_time_count BIGINT NOT NULL DEFAULT 0,
    minutes_covered INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX idx_queue_analytics_unique
    ON queue_analytics (date, queue_name, consumer_group) NULLS NOT DISTINCT;

CREATE TABLE queue_analytics_minute (
    minute TIMESTAMPTZ NOT NULL,
    queue_name VARCHAR(255) NOT NULL,
    consumer_group VARCHAR(255),
    messages_enqueued BIGINT NOT NULL DEFAULT 0,
    messages_processed BIGINT NOT NULL DEFAULT 0,
    messages_failed BIGINT NOT NULL DEFAULT 0,
    messages_retried BIGINT NOT NULL DEFAULT 0,
    messages_expired BIGINT NOT NULL DEFAULT 0,
    messages_delivered BIGINT NOT NULL DEFAULT 0,
    processing_time_sum_ms BIGINT NOT NULL DEFAULT 0,
    processing_time_count BIGINT NOT NULL DEFAULT 0,
    wait_time_sum_ms BIGINT NOT NULL DEFAULT 0,
    wait_time_count BIGINT NOT NULL DEFAULT 0,
    peak_queue_depth INTEGER NOT NULL DEFAULT 0
) PARTITION BY RANGE (minute);
CREATE UNIQUE INDEX idx_queue_analytics_minute_unique
    ON queue_analytics_minute (minute, queue_name, consumer_group) NULLS NOT DISTINCT;

-- n values of `metric` (processing_ms, wait_ms, ...) in a bucket whose bounds grow by 2 %.
CREATE TABLE queue_analytics_histogram (
    minute TIMESTAMPTZ NOT NULL,
    queue_name VARCHAR(255) NOT NULL,
    consumer_group VARCHAR(255),
    metric VARCHAR(40) NOT NULL,
    bucket INTEGER NOT NULL,
    n BIGINT NOT NULL
) PARTITION BY RANGE (minute);
CREATE UNIQUE INDEX idx_queue_analytics_histogram_unique
    ON queue_analytics_histogram (minute, queue_name, consumer_group, metric, bucket) NULLS NOT DISTINCT;
