-- Messages and their copies: open ones here, one row each; finished ones in history, by day of their end.
-- A message is open while one of its copies waits, is leased or is dead.

-- How finished a status is: a message is as far as its least finished copy.
CREATE FUNCTION godwit_rank(status text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT array_position(
        ARRAY['scheduled', 'pending', 'processing', 'failed', 'expired', 'cancelled', 'completed'], status
    )
$$;
CREATE FUNCTION godwit_ranked(rank int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (ARRAY['scheduled', 'pending', 'processing', 'failed', 'expired', 'cancelled', 'completed'])[rank]
$$;

CREATE TABLE queue_messages (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    queue_name VARCHAR(255) NOT NULL,
    message_id VARCHAR(255) NOT NULL UNIQUE,
    type VARCHAR(100) NOT NULL,
    priority INTEGER NOT NULL DEFAULT 0,
    payload JSONB NOT NULL,
    metadata JSONB NOT NULL,
    status VARCHAR(20) NOT NULL DEFAULT 'pending',
    retry_count INTEGER DEFAULT 0,
    max_retries INTEGER DEFAULT 3,
    scheduled_at TIMESTAMPTZ,
    processed_at TIMESTAMPTZ,
    expires_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ DEFAULT now(),
    updated_at TIMESTAMPTZ DEFAULT now(),
    -- The worst end among copies that have ended, so that history need not be asked: see docs/howto/store.md.
    ended_as VARCHAR(20)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX idx_queue_messages_queue_name ON queue_messages (queue_name);
CREATE INDEX idx_queue_messages_status ON queue_messages (status);
CREATE INDEX idx_queue_messages_scheduled_at ON queue_messages (scheduled_at);
CREATE INDEX idx_queue_messages_priority ON queue_messages (priority DESC);

-- One row per open or dead copy, at its address: a message published twice with one id has two.
CREATE TABLE queue_deliveries (
    queue_name VARCHAR(255) NOT NULL,
    consumer_group VARCHAR(255) NOT NULL,
    publish_seq BIGINT NOT NULL,
    message_id VARCHAR(255) NOT NULL,
    status VARCHAR(20) NOT NULL,
    retry_count INTEGER NOT NULL DEFAULT 0,
    processed_at TIMESTAMPTZ,
    attempt INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    worker VARCHAR(255),
    delivery_id TEXT,
    ready_at TIMESTAMPTZ,
    delivered_at TIMESTAMPTZ,
    lease_until TIMESTAMPTZ,
    run_ms INTEGER,
    error_kind VARCHAR(20),
    error_fingerprint VARCHAR(64),
    result JSONB,
    updated_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (queue_name, consumer_group, publish_seq)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX idx_queue_deliveries_message_id ON queue_deliveries (message_id);

CREATE TABLE queue_messages_history (
    id UUID NOT NULL DEFAULT gen_random_uuid(),
    queue_name VARCHAR(255) NOT NULL,
    message_id VARCHAR(255) NOT NULL,
    type VARCHAR(100) NOT NULL,
    priority INTEGER NOT NULL,
    payload JSONB NOT NULL,
    metadata JSONB NOT NULL,
    status VARCHAR(20) NOT NULL,
    retry_count INTEGER,
    max_retries INTEGER,
    scheduled_at TIMESTAMPTZ,
    processed_at TIMESTAMPTZ,
    expires_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ,
    updated_at TIMESTAMPTZ,
    finished_at TIMESTAMPTZ NOT NULL
) PARTITION BY RANGE (finished_at);
CREATE INDEX idx_queue_messages_history_message_id ON queue_messages_history (message_id);

CREATE TABLE queue_deliveries_history (
    LIKE queue_deliveries,
    finished_at TIMESTAMPTZ NOT NULL
) PARTITION BY RANGE (finished_at);
CREATE INDEX idx_queue_deliveries_history_message_id ON queue_deliveries_history (message_id);

-- How far the recorder has got in each shard of the journal; written in the transaction of what it recorded.
CREATE TABLE recorder_position (
    shard VARCHAR(300) PRIMARY KEY,
    epoch TEXT NOT NULL,
    seq BIGINT NOT NULL,
    at TIMESTAMPTZ NOT NULL,
    lost BIGINT NOT NULL DEFAULT 0,
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
