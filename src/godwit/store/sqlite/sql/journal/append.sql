-- shard, last_seq, n, at, header, rows. Adds one step.
INSERT INTO journal_chunks (shard, last_seq, n, at, header, rows) VALUES (?, ?, ?, ?, ?, ?)
