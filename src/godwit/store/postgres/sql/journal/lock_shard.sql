-- $1 shard. Locks it for numbering; returns last_seq and last_at, or nothing when it is missing.
SELECT last_seq, last_at FROM journal_shards WHERE shard = $1 FOR UPDATE
