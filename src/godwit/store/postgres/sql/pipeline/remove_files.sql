-- $1 lake, $2 paths. Lets files stop counting; returns those that did count.
UPDATE lake_manifest SET removed_at = now()
WHERE pipeline = $1 AND path = ANY($2::text[]) AND removed_at IS NULL
RETURNING path
