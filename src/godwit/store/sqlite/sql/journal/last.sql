-- shard. Returns its last seq and time.
SELECT last_seq, last_at FROM journal_shards WHERE shard = ?
