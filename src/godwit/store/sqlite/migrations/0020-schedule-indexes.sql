-- Firings as a table with row numbers: a million of them come in the order of their keys, and random ids would scatter
-- whole rows over the file. A campaign's keys are found by the ids made from them, so only the campaign itself needs an
-- index; firings that wait for another try, or for their cancelling, are few.

DROP INDEX idx_schedule_firings_due;
DROP INDEX idx_schedule_firings_unconfirmed;
DROP INDEX idx_schedule_firings_campaign;
DROP INDEX idx_schedule_firings_schedule;
ALTER TABLE schedule_firings RENAME TO schedule_firings_before;
CREATE TABLE schedule_firings (
    id TEXT NOT NULL UNIQUE,
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
) STRICT;
INSERT INTO schedule_firings SELECT * FROM schedule_firings_before;
DROP TABLE schedule_firings_before;
CREATE INDEX idx_schedule_firings_due ON schedule_firings (deliver_at) WHERE status = 'created';
CREATE INDEX idx_schedule_firings_unconfirmed ON schedule_firings (queued_at) WHERE status = 'queued';
CREATE INDEX idx_schedule_firings_campaign ON schedule_firings (campaign) WHERE campaign IS NOT NULL;
CREATE INDEX idx_schedule_firings_schedule ON schedule_firings (schedule_id, fire_at) WHERE schedule_id IS NOT NULL;
CREATE INDEX idx_schedule_firings_again ON schedule_firings (claimed_until) WHERE status IN ('refused', 'cancelling');
CREATE INDEX idx_schedule_firings_history_campaign ON schedule_firings_history (campaign) WHERE campaign IS NOT NULL;
