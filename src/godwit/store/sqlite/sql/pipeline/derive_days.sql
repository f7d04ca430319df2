-- :run. Works out what follows from the sums of the days it touched: averages, and throughput over the minutes that
-- the queue's journal covers of the day, which are those of the row of all groups.
UPDATE queue_analytics AS row SET
    average_processing_time_ms = coalesce(
        CAST(round(1.0 * row.processing_time_sum_ms / nullif(row.processing_time_count, 0)) AS INTEGER), 0
    ),
    minutes_covered = whole.minutes,
    throughput_per_minute = round(1.0 * row.messages_processed / whole.minutes, 2)
FROM (
    SELECT date, queue_name, (covered_until - covered_from) / 60000 + 1 AS minutes
    FROM queue_analytics
    WHERE consumer_group IS NULL AND (date, queue_name) IN (
        SELECT DISTINCT date(minute / 1000, 'unixepoch'), queue_name
        FROM staging_analytics_minute WHERE run_id = :run
    )
) AS whole
WHERE row.date = whole.date AND row.queue_name = whole.queue_name
