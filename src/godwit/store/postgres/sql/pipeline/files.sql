-- $1 lake, $2 dataset, $3 days or null for all. Returns the files that count.
SELECT path, dataset, day::text AS day, row_count AS rows, byte_count AS bytes, first_seq, last_seq
FROM lake_manifest
WHERE pipeline = $1 AND dataset = $2 AND removed_at IS NULL AND ($3::date[] IS NULL OR day = ANY($3::date[]))
ORDER BY day, path
