-- $1 reader, $2 shard, $3 epoch, $4 seq. Registers how far a reader has got; nothing returned means another epoch.
INSERT INTO journal_readers (reader, shard, epoch, seq)
SELECT $1, shard, epoch, $4 FROM journal_shards WHERE shard = $2 AND epoch = $3
ON CONFLICT (reader, shard) DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq, updated_at = now()
RETURNING seq
