-- $1 lake, $2 an instant in ms. Returns files that stopped counting before it.
SELECT path FROM lake_manifest WHERE pipeline = $1 AND removed_at < to_timestamp($2 / 1000.0) ORDER BY path
