-- shard, last_seq. Drops one step.
DELETE FROM journal_chunks WHERE shard = ? AND last_seq = ?
