-- :shard or NULL. Returns what each shard, or this one, holds.
SELECT shard, epoch, first_seq, last_seq, bytes, dropped FROM journal_shards WHERE :shard IS NULL OR shard = :shard
