-- $1 lake, $2 paths. Forgets files that stopped counting.
DELETE FROM lake_manifest WHERE pipeline = $1 AND path = ANY($2::text[]) AND removed_at IS NOT NULL
