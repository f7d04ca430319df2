-- Everything the broker keeps; the store may keep tables of its own in the same file.
-- Times are milliseconds since 1970. A run's key is queue << 43 | part << 40 | turn of its last message.

CREATE TABLE broker_schema (version INTEGER NOT NULL) STRICT;

-- A journal and the counters of its queue, which change together with every publish.
CREATE TABLE broker_shards (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    epoch TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    publish_seq INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    published INTEGER NOT NULL,
    duplicates INTEGER NOT NULL
) STRICT;

-- How many dead letters removed groups had: their ids are not used again.
CREATE TABLE broker_letter_seqs (
    shard_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (shard_id, name)
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: runs that only the journal still needs outlive their queue, so its number must not come back.
CREATE TABLE broker_queues (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    spec BLOB NOT NULL,
    shard_id INTEGER NOT NULL
) STRICT;

-- lane0..lane3: the turn up to which the group has taken the runs of that lane; the copies beyond have no row of their own.
CREATE TABLE broker_groups (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    spec BLOB NOT NULL,
    lane0 INTEGER NOT NULL,
    lane1 INTEGER NOT NULL,
    lane2 INTEGER NOT NULL,
    lane3 INTEGER NOT NULL,
    ready INTEGER NOT NULL,
    explicit INTEGER NOT NULL,
    skips INTEGER NOT NULL,
    blocked INTEGER NOT NULL,
    delayed INTEGER NOT NULL,
    expiring INTEGER NOT NULL,
    leased INTEGER NOT NULL,
    dead INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    leased_bytes INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    letter_seq INTEGER NOT NULL,
    pulls INTEGER NOT NULL,
    looked_at INTEGER NOT NULL,
    UNIQUE (queue_id, name)
) STRICT;

-- live: copies that are not at their end; holds: journal chunks that take their bodies from here.
CREATE TABLE broker_runs (
    last INTEGER PRIMARY KEY,
    n INTEGER NOT NULL,
    live INTEGER NOT NULL,
    holds INTEGER NOT NULL
) STRICT;

-- The messages of a run, MessagePack, written once and never changed.
CREATE TABLE broker_bodies (last INTEGER PRIMARY KEY, messages BLOB NOT NULL) STRICT;

-- Dedup window (`until`) and the way from an id to its newest message; `older` ones with the same id, MessagePack.
CREATE TABLE broker_ids (
    queue_id INTEGER NOT NULL,
    id TEXT NOT NULL,
    until INTEGER NOT NULL,
    run INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    older BLOB,
    PRIMARY KEY (queue_id, id)
) STRICT, WITHOUT ROWID;

-- Waiting copies that are not simply next in a run: returned, delayed, blocked, expiring, or for one group only.
CREATE TABLE broker_waiting (
    group_id INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    ord INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    run INTEGER NOT NULL,
    lane INTEGER NOT NULL,
    key TEXT,
    size INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    ready_at INTEGER NOT NULL,
    expiry INTEGER,
    returned INTEGER NOT NULL,
    errors BLOB,
    PRIMARY KEY (group_id, slot, ord, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX broker_waiting_by_seq ON broker_waiting (group_id, seq);
CREATE INDEX broker_waiting_by_expiry ON broker_waiting (group_id, expiry, seq) WHERE expiry IS NOT NULL;
CREATE INDEX broker_waiting_by_key ON broker_waiting (group_id, key, seq) WHERE slot = 9;

-- Copies of a run that ended before their group's turn came to them.
CREATE TABLE broker_skips (
    group_id INTEGER NOT NULL,
    pos INTEGER NOT NULL,
    PRIMARY KEY (group_id, pos)
) STRICT, WITHOUT ROWID;

-- Ordering keys that have a head; what follows it is blocked.
CREATE TABLE broker_heads (
    group_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    PRIMARY KEY (group_id, key)
) STRICT, WITHOUT ROWID;

-- What was given out together and is not settled: at most 100 leases a row, MessagePack.
CREATE TABLE broker_leases (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    group_id INTEGER NOT NULL,
    mark TEXT NOT NULL,
    worker TEXT NOT NULL,
    delivered_at INTEGER NOT NULL,
    due INTEGER NOT NULL,
    shortest INTEGER NOT NULL,
    leases BLOB NOT NULL
) STRICT;
CREATE INDEX broker_leases_by_due ON broker_leases (group_id, due);
CREATE INDEX broker_leases_by_length ON broker_leases (group_id, shortest);

CREATE TABLE broker_letters (
    group_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    run INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    size INTEGER NOT NULL,
    kind TEXT NOT NULL,
    dead_at INTEGER NOT NULL,
    ready_at INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    errors BLOB,
    PRIMARY KEY (group_id, number)
) STRICT, WITHOUT ROWID;

-- place: shard << 43 | last_seq. With `recipe` the chunk only says which runs its rows are made of.
CREATE TABLE broker_journal (
    place INTEGER PRIMARY KEY,
    shard INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    n INTEGER NOT NULL,
    at INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    recipe INTEGER NOT NULL,
    chunk BLOB NOT NULL
) STRICT;

CREATE TABLE broker_readers (
    reader TEXT NOT NULL,
    shard_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (reader, shard_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE broker_shared (
    key TEXT PRIMARY KEY,
    value BLOB NOT NULL,
    version INTEGER NOT NULL,
    until INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX broker_shared_until ON broker_shared (until) WHERE until IS NOT NULL;

CREATE TABLE broker_versions (version INTEGER NOT NULL) STRICT;

-- Queues whose clock fell behind their time (`at`) at the instant `clock`: see core/journal/queue_time. Made when a file is opened, too.
CREATE TABLE IF NOT EXISTS broker_lags (
    shard_id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    clock INTEGER NOT NULL
) STRICT;

-- Older messages of an id that was published again; `broker_ids` leads to the newest. Made when a file is opened, too.
CREATE TABLE IF NOT EXISTS broker_repeats (
    queue_id INTEGER NOT NULL,
    id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    run INTEGER NOT NULL,
    PRIMARY KEY (queue_id, id, seq)
) STRICT, WITHOUT ROWID;

-- Groups whose counters disagreed with what is stored, and when they were mended. Made when a file is opened, too.
CREATE TABLE IF NOT EXISTS broker_mends (queue TEXT NOT NULL, grp TEXT NOT NULL, at INTEGER NOT NULL) STRICT;
