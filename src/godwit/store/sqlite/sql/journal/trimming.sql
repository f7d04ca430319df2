-- :shard. Returns its size, its first row and how far all readers have read.
SELECT
    bytes,
    first_seq,
    coalesce((SELECT min(seq) FROM journal_readers WHERE shard = :shard), last_seq) AS read_by_all
FROM journal_shards WHERE shard = :shard
