-- Effects that happen once, and messages that leave with a transaction.

-- A claimed key is `claimed` until its effect is `done`; a claim whose holder died is free again after `claimed_until`.
CREATE TABLE idempotency_ledger (
    key VARCHAR(512) PRIMARY KEY,
    status VARCHAR(20) NOT NULL DEFAULT 'claimed',
    holder VARCHAR(255) NOT NULL,
    claimed_until TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    result JSONB,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE INDEX idx_idempotency_ledger_expires_at ON idempotency_ledger (expires_at);

-- Sealed messages written in an application's own transaction; forwarded in order of `number` and then deleted.
-- tried_at: somebody may have published it, so after the dedup window its status is asked for first.
CREATE TABLE outbox (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id VARCHAR(255) NOT NULL,
    queue_name VARCHAR(255) NOT NULL,
    envelope BYTEA NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    due_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    tried_at TIMESTAMPTZ,
    tries INTEGER NOT NULL DEFAULT 0,
    error TEXT
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX idx_outbox_due_at ON outbox (due_at, number);
