-- $1 run. Adds its staged counts to the histograms; days must have their partitions.
INSERT INTO queue_analytics_histogram AS old (minute, queue_name, consumer_group, metric, bucket, n)
SELECT minute, queue_name, consumer_group, metric, bucket, n
FROM staging_analytics_histogram
WHERE run_id = $1
ORDER BY minute, queue_name, consumer_group, metric, bucket
ON CONFLICT (minute, queue_name, consumer_group, metric, bucket) DO UPDATE SET n = old.n + excluded.n
