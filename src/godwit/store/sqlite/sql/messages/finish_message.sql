-- :message_id, :status, :retry_count, :processed_at, :finished_at. Writes a message to history; it is deleted next.
INSERT INTO queue_messages_history (
    id, queue_name, message_id, type, priority, payload, metadata, status, retry_count, max_retries, scheduled_at,
    processed_at, expires_at, created_at, updated_at, finished_at
)
SELECT
    id, queue_name, message_id, type, priority, payload, metadata, coalesce(:status, status),
    max(retry_count, :retry_count), max_retries, scheduled_at, coalesce(:processed_at, processed_at), expires_at,
    created_at, :finished_at, :finished_at
FROM queue_messages
WHERE message_id = :message_id
