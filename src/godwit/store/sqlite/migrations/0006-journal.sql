-- The journal of brokers that cannot keep one. One writer at a time: numbers are given in the writing transaction.

CREATE TABLE journal_shards (
    shard TEXT PRIMARY KEY,
    epoch TEXT NOT NULL,
    last_seq INTEGER NOT NULL DEFAULT 0,
    last_at INTEGER NOT NULL DEFAULT 0,
    first_seq INTEGER NOT NULL DEFAULT 1,
    bytes INTEGER NOT NULL DEFAULT 0,
    dropped INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE journal_chunks (
    shard TEXT NOT NULL,
    last_seq INTEGER NOT NULL,
    n INTEGER NOT NULL,
    at INTEGER NOT NULL,
    header BLOB NOT NULL,
    rows BLOB NOT NULL,
    PRIMARY KEY (shard, last_seq)
) STRICT;

CREATE TABLE journal_readers (
    reader TEXT NOT NULL,
    shard TEXT NOT NULL,
    epoch TEXT NOT NULL,
    seq INTEGER NOT NULL,
    updated_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    PRIMARY KEY (reader, shard)
) STRICT, WITHOUT ROWID;
