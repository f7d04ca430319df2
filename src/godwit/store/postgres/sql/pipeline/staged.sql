-- $1 run. Returns how many rows are staged under its id.
SELECT
    (SELECT count(*) FROM staging_analytics_minute WHERE run_id = $1) AS minutes,
    (SELECT count(*) FROM staging_analytics_histogram WHERE run_id = $1) AS histogram
