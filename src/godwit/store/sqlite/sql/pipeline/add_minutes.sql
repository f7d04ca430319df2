-- :run. Adds its staged numbers to the minutes.
INSERT INTO queue_analytics_minute AS old (
    minute, queue_name, consumer_group, messages_enqueued, messages_processed, messages_failed, messages_retried,
    messages_expired, messages_delivered, processing_time_sum_ms, processing_time_count, wait_time_sum_ms,
    wait_time_count, peak_queue_depth
)
SELECT
    minute, queue_name, consumer_group, messages_enqueued, messages_processed, messages_failed, messages_retried,
    messages_expired, messages_delivered, processing_time_sum_ms, processing_time_count, wait_time_sum_ms,
    wait_time_count, peak_queue_depth
FROM staging_analytics_minute
WHERE run_id = :run
ORDER BY minute, queue_name, consumer_group
ON CONFLICT (minute, queue_name, ifnull(consumer_group, '')) DO UPDATE SET
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
    peak_queue_depth = max(old.peak_queue_depth, excluded.peak_queue_depth)
