-- What the newest plan of a campaign says, written by many tasks, until it is applied.

CREATE TABLE staging_plan (
    run_id TEXT NOT NULL,
    id TEXT NOT NULL,
    key TEXT NOT NULL,
    deliver_at INTEGER NOT NULL,
    envelope BLOB NOT NULL,
    PRIMARY KEY (run_id, id)
) STRICT, WITHOUT ROWID;
