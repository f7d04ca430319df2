-- What is due later. A schedule is a rule that recurs; a firing is one message due at one time, whether a rule, a
-- campaign or a single call asked for it. Ids of firings are made from (schedule, time) or (campaign, key): twice is once.

CREATE TABLE schedules (
    id VARCHAR(255) PRIMARY KEY,
    queue_name VARCHAR(255) NOT NULL,
    envelope BYTEA NOT NULL,
    cron VARCHAR(255) NOT NULL,
    timezone VARCHAR(64) NOT NULL DEFAULT 'UTC',
    starts_at TIMESTAMPTZ,
    ends_at TIMESTAMPTZ,
    max_occurrences INTEGER,
    jitter_ms BIGINT NOT NULL DEFAULT 0,
    misfire VARCHAR(20) NOT NULL DEFAULT 'fire_once',
    status VARCHAR(20) NOT NULL DEFAULT 'active',
    next_fire_at TIMESTAMPTZ,
    last_fire_at TIMESTAMPTZ,
    occurrences INTEGER NOT NULL DEFAULT 0,
    skipped INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT 1,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE INDEX idx_schedules_next_fire_at ON schedules (next_fire_at) WHERE status = 'active';

CREATE TABLE campaigns (
    name VARCHAR(255) PRIMARY KEY,
    status VARCHAR(20) NOT NULL DEFAULT 'active',
    planned BIGINT NOT NULL DEFAULT 0,
    cancelled BIGINT NOT NULL DEFAULT 0,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now()
);

-- status: created -> queued (published, unconfirmed) -> published; cancelled. Confirmed ones move to history.
CREATE TABLE schedule_firings (
    id UUID PRIMARY KEY,
    schedule_id VARCHAR(255),
    campaign VARCHAR(255),
    key VARCHAR(512),
    queue_name VARCHAR(255) NOT NULL,
    message_id VARCHAR(255) NOT NULL,
    fire_at TIMESTAMPTZ NOT NULL,
    deliver_at TIMESTAMPTZ NOT NULL,
    envelope BYTEA,
    status VARCHAR(20) NOT NULL DEFAULT 'created',
    claimed_by VARCHAR(255),
    claimed_until TIMESTAMPTZ,
    queued_at TIMESTAMPTZ,
    published_at TIMESTAMPTZ,
    tries INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX idx_schedule_firings_due ON schedule_firings (deliver_at) WHERE status = 'created';
CREATE INDEX idx_schedule_firings_unconfirmed ON schedule_firings (queued_at) WHERE status = 'queued';
CREATE INDEX idx_schedule_firings_campaign ON schedule_firings (campaign, key) WHERE campaign IS NOT NULL;
CREATE INDEX idx_schedule_firings_schedule ON schedule_firings (schedule_id, fire_at) WHERE schedule_id IS NOT NULL;

CREATE TABLE schedule_firings_history (
    LIKE schedule_firings,
    finished_at TIMESTAMPTZ NOT NULL
) PARTITION BY RANGE (finished_at);
CREATE INDEX idx_schedule_firings_history_id ON schedule_firings_history (id);
CREATE INDEX idx_schedule_firings_history_schedule ON schedule_firings_history (schedule_id, fire_at);
