-- Effects that happen once, and messages that leave with a transaction.

-- A claimed key is `claimed` until its effect is `done`; a claim whose holder died is free again after `claimed_until`.
CREATE TABLE idempotency_ledger (
    key TEXT PRIMARY KEY,
    status TEXT NOT NULL DEFAULT 'claimed',
    holder TEXT NOT NULL,
    claimed_until INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    result TEXT,
    created_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    updated_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_idempotency_ledger_expires_at ON idempotency_ledger (expires_at);

-- Sealed messages written in an application's own transaction; forwarded in order of `number` and then deleted.
-- tried_at: somebody may have published it, so after the dedup window its status is asked for first.
CREATE TABLE outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id TEXT NOT NULL,
    queue_name TEXT NOT NULL,
    envelope BLOB NOT NULL,
    created_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    due_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    tried_at INTEGER,
    tries INTEGER NOT NULL DEFAULT 0,
    error TEXT
) STRICT;
CREATE INDEX idx_outbox_due_at ON outbox (due_at, number);
