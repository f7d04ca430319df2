-- $1 message id. Returns the message as it ended last.
SELECT
    queue_name, message_id, type, priority, status, retry_count, max_retries, scheduled_at, processed_at, expires_at,
    created_at, updated_at
FROM queue_messages_history
WHERE message_id = $1
ORDER BY finished_at DESC
LIMIT 1
