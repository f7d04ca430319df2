-- :lake, :dataset, :days as JSON or null for all. Returns the files that count.
SELECT path, dataset, day, row_count AS rows, byte_count AS bytes, first_seq, last_seq
FROM lake_manifest
WHERE pipeline = :lake AND dataset = :dataset AND removed_at IS NULL
    AND (:days IS NULL OR day IN (SELECT value FROM json_each(:days)))
ORDER BY day, path
