-- $1 message id. Returns the message if it is open.
SELECT
    queue_name, message_id, type, priority, status, retry_count, max_retries, scheduled_at, processed_at, expires_at,
    created_at, updated_at
FROM queue_messages
WHERE message_id = $1
