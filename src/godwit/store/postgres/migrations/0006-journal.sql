-- The journal of brokers that cannot keep one. Writers only insert, and never wait for each other.
-- Rows are numbered when they are read: only those of transactions below the oldest one still running, in the order
-- of transactions, so that a slow writer's row is numbered late instead of being skipped.

CREATE TABLE journal_shards (
    shard VARCHAR(300) PRIMARY KEY,
    epoch TEXT NOT NULL,
    last_seq BIGINT NOT NULL DEFAULT 0,
    last_at BIGINT NOT NULL DEFAULT 0,
    first_seq BIGINT NOT NULL DEFAULT 1,
    bytes BIGINT NOT NULL DEFAULT 0,
    dropped BIGINT NOT NULL DEFAULT 0
);

-- Steps as they arrive; numbering moves them to journal_chunks.
CREATE TABLE journal_arrivals (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid XID8 NOT NULL DEFAULT pg_current_xact_id(),
    shard VARCHAR(300) NOT NULL,
    n INTEGER NOT NULL,
    at BIGINT NOT NULL,
    header BYTEA NOT NULL,
    rows BYTEA NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX idx_journal_arrivals_shard ON journal_arrivals (shard, xid, id);

CREATE TABLE journal_chunks (
    shard VARCHAR(300) NOT NULL,
    last_seq BIGINT NOT NULL,
    n INTEGER NOT NULL,
    at BIGINT NOT NULL,
    header BYTEA NOT NULL,
    rows BYTEA NOT NULL,
    written_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (shard, last_seq, written_at)
) PARTITION BY RANGE (written_at);

CREATE TABLE journal_readers (
    reader VARCHAR(255) NOT NULL,
    shard VARCHAR(300) NOT NULL,
    epoch TEXT NOT NULL,
    seq BIGINT NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (reader, shard)
);
