-- $1 queues, $2 groups, $3 instances, $4 processed, $5 errors, $6 ms spent, $7 last signs of life.
-- Adds to the books of members; a group that is not known gets a row, since its creation may have been trimmed away.
WITH work AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::timestamptz[])
    AS work (queue_name, group_name, instance_id, processed, errors, run_ms, last_at)
),
known AS (
    INSERT INTO consumer_groups (name, queue_name, configuration)
    SELECT DISTINCT group_name, queue_name, '{}'::jsonb FROM work
    ON CONFLICT (name, queue_name) DO UPDATE SET updated_at = consumer_groups.updated_at
    RETURNING id, name, queue_name
)
INSERT INTO consumer_instances AS member (
    consumer_group_id, instance_id, last_heartbeat, processed_count, error_count, processing_time_sum_ms,
    average_processing_time_ms, created_at, updated_at
)
SELECT
    known.id, work.instance_id, work.last_at, work.processed, work.errors, work.run_ms,
    CASE WHEN work.processed > 0 THEN work.run_ms / work.processed ELSE 0 END, work.last_at, work.last_at
FROM work
JOIN known ON known.name = work.group_name AND known.queue_name = work.queue_name
ON CONFLICT (consumer_group_id, instance_id) DO UPDATE SET
    status = 'active',
    last_heartbeat = greatest(member.last_heartbeat, excluded.last_heartbeat),
    processed_count = member.processed_count + excluded.processed_count,
    error_count = member.error_count + excluded.error_count,
    processing_time_sum_ms = member.processing_time_sum_ms + excluded.processing_time_sum_ms,
    average_processing_time_ms = CASE
        WHEN member.processed_count + excluded.processed_count > 0
            THEN (member.processing_time_sum_ms + excluded.processing_time_sum_ms)
                / (member.processed_count + excluded.processed_count)
        ELSE 0
    END,
    updated_at = excluded.updated_at
