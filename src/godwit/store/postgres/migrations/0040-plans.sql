-- What the newest plan of a campaign says, written by many tasks, until it is applied.

CREATE UNLOGGED TABLE staging_plan (
    run_id VARCHAR(64) NOT NULL,
    id UUID NOT NULL,
    key VARCHAR(512) NOT NULL,
    deliver_at TIMESTAMPTZ NOT NULL,
    envelope BYTEA NOT NULL
);
CREATE INDEX idx_staging_plan_run ON staging_plan (run_id, id);
