-- $1 ids of messages whose copies changed, $2 when. Moves those without an open copy to history.
WITH changed AS (
    SELECT message_id, at FROM unnest($1::text[], $2::timestamptz[]) AS changed (message_id, at)
),
gone AS (
    DELETE FROM queue_messages message USING changed
    WHERE
        message.message_id = changed.message_id
        AND NOT EXISTS (SELECT FROM queue_deliveries open WHERE open.message_id = changed.message_id)
    RETURNING message.*, changed.at
)
INSERT INTO queue_messages_history (
    id, queue_name, message_id, type, priority, payload, metadata, status, retry_count, max_retries, scheduled_at,
    processed_at, expires_at, created_at, updated_at, finished_at
)
SELECT
    id, queue_name, message_id, type, priority, payload, metadata, coalesce(ended_as, status), retry_count, max_retries,
    scheduled_at, processed_at, expires_at, created_at, at, at
FROM gone
