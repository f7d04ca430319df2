-- :queue, :group, :instance, :processed, :errors, :run_ms, :last_at. Adds to the books of a member.
INSERT INTO consumer_instances (
    consumer_group_id, instance_id, last_heartbeat, processed_count, error_count, processing_time_sum_ms,
    average_processing_time_ms, created_at, updated_at
)
SELECT
    id, :instance, :last_at, :processed, :errors, :run_ms,
    CASE WHEN :processed > 0 THEN :run_ms / :processed ELSE 0 END, :last_at, :last_at
FROM consumer_groups
WHERE name = :group AND queue_name = :queue
ON CONFLICT (consumer_group_id, instance_id) DO UPDATE SET
    status = 'active',
    last_heartbeat = max(last_heartbeat, excluded.last_heartbeat),
    processed_count = processed_count + excluded.processed_count,
    error_count = error_count + excluded.error_count,
    processing_time_sum_ms = processing_time_sum_ms + excluded.processing_time_sum_ms,
    average_processing_time_ms = CASE
        WHEN processed_count + excluded.processed_count > 0
            THEN (processing_time_sum_ms + excluded.processing_time_sum_ms)
                / (processed_count + excluded.processed_count)
        ELSE 0
    END,
    updated_at = excluded.updated_at
