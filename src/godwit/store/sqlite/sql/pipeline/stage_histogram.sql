-- The run, then the values of a bucket. Stages one row.
INSERT INTO staging_analytics_histogram VALUES (?, ?, ?, ?, ?, ?, ?)
