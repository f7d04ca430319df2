-- Queues, groups and their members, as the journal and the heartbeats tell them.
-- Times are milliseconds since 1970 (UTC), ids are text, JSON is text.

CREATE TABLE message_queues (
    id TEXT PRIMARY KEY DEFAULT (lower(hex(randomblob(16)))),
    name TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL,
    priority INTEGER NOT NULL DEFAULT 0,
    configuration TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'active',
    created_at INTEGER DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    updated_at INTEGER DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
) STRICT;
CREATE INDEX idx_message_queues_type ON message_queues (type);
CREATE INDEX idx_message_queues_priority ON message_queues (priority);

CREATE TABLE consumer_groups (
    id TEXT PRIMARY KEY DEFAULT (lower(hex(randomblob(16)))),
    name TEXT NOT NULL,
    queue_name TEXT NOT NULL,
    configuration TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'active',
    created_at INTEGER DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    updated_at INTEGER DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    UNIQUE (name, queue_name)
) STRICT;

-- Sums stand beside the seed's average: an average alone cannot be added to.
CREATE TABLE consumer_instances (
    id TEXT PRIMARY KEY DEFAULT (lower(hex(randomblob(16)))),
    consumer_group_id TEXT NOT NULL REFERENCES consumer_groups (id) ON DELETE CASCADE,
    instance_id TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'active',
    last_heartbeat INTEGER DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    processed_count INTEGER DEFAULT 0,
    error_count INTEGER DEFAULT 0,
    average_processing_time_ms INTEGER DEFAULT 0,
    processing_time_sum_ms INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    updated_at INTEGER DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    UNIQUE (consumer_group_id, instance_id)
) STRICT;
CREATE INDEX idx_consumer_instances_group_id ON consumer_instances (consumer_group_id);
CREATE INDEX idx_consumer_instances_status ON consumer_instances (status);
