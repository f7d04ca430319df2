-- :lake, :before in ms. Returns files that stopped counting before it.
SELECT path FROM lake_manifest WHERE pipeline = :lake AND removed_at < :before ORDER BY path
