-- shard, seq already read. Returns the steps beyond it in order; the reader stops when it has enough.
SELECT last_seq, n, at, header, rows FROM journal_chunks WHERE shard = ? AND last_seq > ? ORDER BY last_seq
