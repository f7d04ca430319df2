-- Messages and their copies: open ones here, one row each; finished ones in history.
-- A message is open while one of its copies waits, is leased or is dead.

CREATE TABLE queue_messages (
    id TEXT PRIMARY KEY DEFAULT (lower(hex(randomblob(16)))),
    queue_name TEXT NOT NULL,
    message_id TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL,
    priority INTEGER NOT NULL DEFAULT 0,
    payload TEXT NOT NULL,
    metadata TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending',
    retry_count INTEGER DEFAULT 0,
    max_retries INTEGER DEFAULT 3,
    scheduled_at INTEGER,
    processed_at INTEGER,
    expires_at INTEGER,
    created_at INTEGER DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    updated_at INTEGER DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    -- The worst end among copies that have ended, so that history need not be asked: see docs/howto/store.md.
    ended_as TEXT
) STRICT;
CREATE INDEX idx_queue_messages_queue_name ON queue_messages (queue_name);
CREATE INDEX idx_queue_messages_status ON queue_messages (status);
CREATE INDEX idx_queue_messages_scheduled_at ON queue_messages (scheduled_at);
CREATE INDEX idx_queue_messages_priority ON queue_messages (priority DESC);

-- One row per open or dead copy, at its address: a message published twice with one id has two.
CREATE TABLE queue_deliveries (
    queue_name TEXT NOT NULL,
    consumer_group TEXT NOT NULL,
    publish_seq INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    status TEXT NOT NULL,
    retry_count INTEGER NOT NULL DEFAULT 0,
    processed_at INTEGER,
    attempt INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    worker TEXT,
    delivery_id TEXT,
    ready_at INTEGER,
    delivered_at INTEGER,
    lease_until INTEGER,
    run_ms INTEGER,
    error_kind TEXT,
    error_fingerprint TEXT,
    result TEXT,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (queue_name, consumer_group, publish_seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_queue_deliveries_message_id ON queue_deliveries (message_id);

CREATE TABLE queue_messages_history (
    id TEXT NOT NULL DEFAULT (lower(hex(randomblob(16)))),
    queue_name TEXT NOT NULL,
    message_id TEXT NOT NULL,
    type TEXT NOT NULL,
    priority INTEGER NOT NULL,
    payload TEXT NOT NULL,
    metadata TEXT NOT NULL,
    status TEXT NOT NULL,
    retry_count INTEGER,
    max_retries INTEGER,
    scheduled_at INTEGER,
    processed_at INTEGER,
    expires_at INTEGER,
    created_at INTEGER,
    updated_at INTEGER,
    finished_at INTEGER NOT NULL
) STRICT;
CREATE INDEX idx_queue_messages_history_message_id ON queue_messages_history (message_id);

CREATE TABLE queue_deliveries_history (
    queue_name TEXT NOT NULL,
    consumer_group TEXT NOT NULL,
    publish_seq INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    status TEXT NOT NULL,
    retry_count INTEGER NOT NULL,
    processed_at INTEGER,
    attempt INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    worker TEXT,
    delivery_id TEXT,
    ready_at INTEGER,
    delivered_at INTEGER,
    lease_until INTEGER,
    run_ms INTEGER,
    error_kind TEXT,
    error_fingerprint TEXT,
    result TEXT,
    updated_at INTEGER NOT NULL,
    finished_at INTEGER NOT NULL
) STRICT;
CREATE INDEX idx_queue_deliveries_history_message_id ON queue_deliveries_history (message_id);

-- How far the recorder has got in each shard of the journal; written in the transaction of what it recorded.
CREATE TABLE recorder_position (
    shard TEXT PRIMARY KEY,
    epoch TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    lost INTEGER NOT NULL DEFAULT 0,
    updated_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
) STRICT;
