-- :lake, :path. Forgets a file that stopped counting.
DELETE FROM lake_manifest WHERE pipeline = :lake AND path = :path AND removed_at IS NOT NULL
