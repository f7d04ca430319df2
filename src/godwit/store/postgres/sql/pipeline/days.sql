-- $1 a date or null for all. Returns the analytics of days from then on.
SELECT
    date::text AS date, queue_name, consumer_group, messages_enqueued, messages_delivered, messages_processed,
    messages_failed, messages_retried, messages_expired, average_processing_time_ms, peak_queue_depth,
    minutes_covered, throughput_per_minute::float8 AS throughput_per_minute
FROM queue_analytics
WHERE $1::date IS NULL OR date >= $1::date
ORDER BY date, queue_name, consumer_group NULLS FIRST
