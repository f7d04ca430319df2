-- reader, shard, epoch, seq. Registers how far a reader has got.
INSERT INTO journal_readers (reader, shard, epoch, seq) VALUES (?, ?, ?, ?)
ON CONFLICT (reader, shard) DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq
