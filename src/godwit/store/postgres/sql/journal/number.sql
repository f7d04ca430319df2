-- $1 shard, $2 its last_seq, $3 its last_at, $4 how many steps at most. The caller holds the shard's row.
-- Numbers steps of transactions below the oldest still running: all of those can be seen now, and none can come later.
-- Returns the new last_seq, last_at and bytes added, NULL when there was nothing.
WITH taken AS (
    DELETE FROM journal_arrivals
    WHERE id IN (
        SELECT id FROM journal_arrivals
        WHERE shard = $1 AND xid < pg_snapshot_xmin(pg_current_snapshot())
        ORDER BY xid, id
        LIMIT $4
    )
    RETURNING id, xid, n, at, header, rows
),
numbered AS (
    SELECT
        $2::bigint + sum(n) OVER order_of_writers AS last_seq,
        n,
        greatest($3::bigint, max(at) OVER order_of_writers) AS at,
        header,
        rows
    FROM taken
    WINDOW order_of_writers AS (ORDER BY xid, id)
),
stored AS (
    INSERT INTO journal_chunks (shard, last_seq, n, at, header, rows)
    SELECT $1, last_seq, n, at, header, rows FROM numbered
    RETURNING last_seq, at, length(header) + length(rows) AS size
)
SELECT max(last_seq) AS last_seq, max(at) AS last_at, sum(size)::bigint AS bytes FROM stored
