-- $1 shard, $2 epoch. Makes the shard when it is missing.
INSERT INTO journal_shards (shard, epoch) VALUES ($1, $2) ON CONFLICT DO NOTHING
