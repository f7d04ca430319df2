-- :lake, :path. Lets a file stop counting; changes nothing when it did not count.
UPDATE lake_manifest SET removed_at = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
WHERE pipeline = :lake AND path = :path AND removed_at IS NULL
