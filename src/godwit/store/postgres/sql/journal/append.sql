-- $1 shard, $2 row counts, $3 times in ms, $4 headers, $5 rows. Adds steps in order; never waits for another writer.
INSERT INTO journal_arrivals (shard, n, at, header, rows)
SELECT $1, n, at, header, rows
FROM unnest($2::int[], $3::bigint[], $4::bytea[], $5::bytea[]) WITH ORDINALITY AS step (n, at, header, rows, place)
ORDER BY place
