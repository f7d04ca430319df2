-- $1 shard, $2 last_seq, $3 last_at, $4 bytes added. Says how far numbering has got.
UPDATE journal_shards SET last_seq = $2, last_at = $3, bytes = bytes + $4 WHERE shard = $1
