-- $1 run. Returns how many messages are staged under it.
SELECT count(DISTINCT id) FROM staging_plan WHERE run_id = $1
