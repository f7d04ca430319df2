-- :run. Adds its staged minutes to their days, and widens the time that the journal covers.
INSERT INTO queue_analytics AS old (
    date, queue_name, consumer_group, messages_enqueued, messages_processed, messages_failed, messages_retried,
    messages_expired, messages_delivered, processing_time_sum_ms, processing_time_count, wait_time_sum_ms,
    wait_time_count, peak_queue_depth, covered_from, covered_until
)
SELECT
    date(minute / 1000, 'unixepoch'), queue_name, consumer_group, sum(messages_enqueued), sum(messages_processed),
    sum(messages_failed), sum(messages_retried), sum(messages_expired), sum(messages_delivered),
    sum(processing_time_sum_ms), sum(processing_time_count), sum(wait_time_sum_ms), sum(wait_time_count),
    max(peak_queue_depth), min(minute), max(minute)
FROM staging_analytics_minute
WHERE run_id = :run
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3
ON CONFLICT (date, queue_name, ifnull(consumer_group, '')) DO UPDATE SET
    messages_enqueued = old.messages_enqueued + excluded.messages_enqueued,
    messages_processed = old.messages_processed + excluded.messages_processed,
    messages_failed = old.messages_failed + excluded.messages_failed,
    messages_retried = old.messages_retried + excluded.messages_retried,
    messages_expired = old.messages_expired + excluded.messages_expired,
    messages_delivered = old.messages_delivered + excluded.messages_delivered,
    processing_time_sum_ms = old.processing_time_sum_ms + excluded.processing_time_sum_ms,
    processing_time_count = old.processing_time_count + excluded.processing_time_count,
    wait_time_sum_ms = old.wait_time_sum_ms + excluded.wait_time_sum_ms,
    wait_time_count = old.wait_time_count + excluded.wait_time_count,
    peak_queue_depth = max(old.peak_queue_depth, excluded.peak_queue_depth),
    covered_from = min(old.covered_from, excluded.covered_from),
    covered_until = max(old.covered_until, excluded.covered_until),
    updated_at = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
