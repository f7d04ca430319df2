-- $1 run. Returns how many messages are staged under it.
SELECT count(*) FROM (SELECT DISTINCT id FROM staging_plan WHERE run_id = $1) AS staged
