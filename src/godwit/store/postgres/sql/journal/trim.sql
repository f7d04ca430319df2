-- $1 shard, $2 time in ms, $3 bytes. Drops steps older than the time that all readers have read, and the oldest ones
-- while the shard holds more bytes. Returns rows dropped, rows no reader had read, bytes dropped, the new first_seq.
WITH readers AS (
    SELECT coalesce(min(seq), 9223372036854775807) AS read_by_all FROM journal_readers WHERE shard = $1
),
counted AS (
    SELECT
        last_seq, n, at, written_at, length(header) + length(rows) AS size,
        sum(length(header) + length(rows)) OVER (ORDER BY last_seq DESC) AS newer
    FROM journal_chunks
    WHERE shard = $1
),
gone AS (
    DELETE FROM journal_chunks
    USING counted, readers
    WHERE
        journal_chunks.shard = $1
        AND journal_chunks.last_seq = counted.last_seq
        AND journal_chunks.written_at = counted.written_at
        AND (counted.newer > $3 OR (counted.at < $2 AND counted.last_seq <= readers.read_by_all))
    RETURNING counted.last_seq, counted.n, counted.size,
        greatest(0, counted.last_seq - greatest(readers.read_by_all, counted.last_seq - counted.n)) AS unread
),
summed AS (
    SELECT
        coalesce(sum(n), 0)::bigint AS rows_gone,
        coalesce(sum(unread), 0)::bigint AS unread,
        coalesce(sum(size), 0)::bigint AS size,
        max(last_seq) AS last_seq
    FROM gone
)
UPDATE journal_shards
SET
    bytes = bytes - summed.size,
    dropped = dropped + summed.unread,
    first_seq = coalesce(summed.last_seq + 1, first_seq)
FROM summed
WHERE shard = $1
RETURNING summed.rows_gone
