-- $1 run. Works out what follows from the sums of the days it touched: averages, and throughput over the minutes that
-- the queue's journal covers of the day, which are those of the row of all groups.
UPDATE queue_analytics AS row SET
    average_processing_time_ms =
        coalesce(round(row.processing_time_sum_ms::numeric / nullif(row.processing_time_count, 0)), 0),
    minutes_covered = whole.minutes,
    throughput_per_minute = round(row.messages_processed::numeric / whole.minutes, 2)
FROM (
    SELECT date, queue_name, (extract(epoch FROM covered_until - covered_from) / 60)::integer + 1 AS minutes
    FROM queue_analytics
    WHERE consumer_group IS NULL AND (date, queue_name) IN (
        SELECT DISTINCT (minute AT TIME ZONE 'UTC')::date, queue_name
        FROM staging_analytics_minute WHERE run_id = $1
    )
) AS whole
WHERE row.date = whole.date AND row.queue_name = whole.queue_name
