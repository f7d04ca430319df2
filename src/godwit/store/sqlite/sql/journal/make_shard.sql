-- shard, epoch. Makes the shard when it is missing.
INSERT INTO journal_shards (shard, epoch) VALUES (?, ?) ON CONFLICT DO NOTHING
