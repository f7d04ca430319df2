-- last_seq, last_at, bytes added, shard. Says how far the shard has got.
UPDATE journal_shards SET last_seq = ?, last_at = ?, bytes = bytes + ? WHERE shard = ?
