-- What is due later. A schedule is a rule that recurs; a firing is one message due at one time, whether a rule, a
-- campaign or a single call asked for it. Ids of firings are made from (schedule, time) or (campaign, key): twice is once.

CREATE TABLE schedules (
    id TEXT PRIMARY KEY,
    queue_name TEXT NOT NULL,
    envelope BLOB NOT NULL,
    cron TEXT NOT NULL,
    timezone TEXT NOT NULL DEFAULT 'UTC',
    starts_at INTEGER,
    ends_at INTEGER,
    max_occurrences INTEGER,
    jitter_ms INTEGER NOT NULL DEFAULT 0,
    misfire TEXT NOT NULL DEFAULT 'fire_once',
    status TEXT NOT NULL DEFAULT 'active',
    next_fire_at INTEGER,
    last_fire_at INTEGER,
    occurrences INTEGER NOT NULL DEFAULT 0,
    skipped INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT 1,
    created_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    updated_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
) STRICT;
CREATE INDEX idx_schedules_next_fire_at ON schedules (next_fire_at) WHERE status = 'active';

CREATE TABLE campaigns (
    name TEXT PRIMARY KEY,
    status TEXT NOT NULL DEFAULT 'active',
    planned INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    updated_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
) STRICT;

-- status: created -> queued (published, unconfirmed) -> published; cancelled. Confirmed ones move to history.
CREATE TABLE schedule_firings (
    id TEXT PRIMARY KEY,
    schedule_id TEXT,
    campaign TEXT,
    key TEXT,
    queue_name TEXT NOT NULL,
    message_id TEXT NOT NULL,
    fire_at INTEGER NOT NULL,
    deliver_at INTEGER NOT NULL,
    envelope BLOB,
    status TEXT NOT NULL DEFAULT 'created',
    claimed_by TEXT,
    claimed_until INTEGER,
    queued_at INTEGER,
    published_at INTEGER,
    tries INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    created_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_schedule_firings_due ON schedule_firings (deliver_at) WHERE status = 'created';
CREATE INDEX idx_schedule_firings_unconfirmed ON schedule_firings (queued_at) WHERE status = 'queued';
CREATE INDEX idx_schedule_firings_campaign ON schedule_firings (campaign, key) WHERE campaign IS NOT NULL;
CREATE INDEX idx_schedule_firings_schedule ON schedule_firings (schedule_id, fire_at) WHERE schedule_id IS NOT NULL;

CREATE TABLE schedule_firings_history (
    id TEXT NOT NULL,
    schedule_id TEXT,
    campaign TEXT,
    key TEXT,
    queue_name TEXT NOT NULL,
    message_id TEXT NOT NULL,
    fire_at INTEGER NOT NULL,
    deliver_at INTEGER NOT NULL,
    envelope BLOB,
    status TEXT NOT NULL,
    claimed_by TEXT,
    claimed_until INTEGER,
    queued_at INTEGER,
    published_at INTEGER,
    tries INTEGER NOT NULL,
    error TEXT,
    created_at INTEGER NOT NULL,
    finished_at INTEGER NOT NULL
) STRICT;
CREATE INDEX idx_schedule_firings_history_id ON schedule_firings_history (id);
CREATE INDEX idx_schedule_firings_history_schedule ON schedule_firings_history (schedule_id, fire_at);
