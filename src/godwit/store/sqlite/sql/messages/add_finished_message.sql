-- A message that arrived and ended; fields in the order of the columns. The row of values is repeated as often as there are rows.
INSERT INTO queue_messages_history (
    queue_name, message_id, type, priority, payload, metadata, retry_count, max_retries, scheduled_at, expires_at,
    created_at, updated_at, status, processed_at, finished_at
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
