-- bytes, rows nobody had read, first_seq, shard. Says what is left.
UPDATE journal_shards SET bytes = ?, dropped = dropped + ?, first_seq = ? WHERE shard = ?
