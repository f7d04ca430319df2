-- $1 shard, $2 seq already read, $3 rows wanted. Returns steps beyond it in order, cut after the rows wanted.
SELECT last_seq, n, at, header, rows
FROM (
    SELECT last_seq, n, at, header, rows, sum(n) OVER (ORDER BY last_seq) AS upto
    FROM (
        SELECT last_seq, n, at, header, rows
        FROM journal_chunks
        WHERE shard = $1 AND last_seq > $2
        ORDER BY last_seq
        LIMIT $3
    ) AS next
) AS counted
WHERE upto - n < $3
ORDER BY last_seq
