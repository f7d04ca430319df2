-- :message_id, :status, :ended_as, :retry_count, :processed_at, :updated_at. An open message as its copies make it.
UPDATE queue_messages
SET
    status = :status,
    ended_as = :ended_as,
    retry_count = max(retry_count, :retry_count),
    processed_at = coalesce(:processed_at, processed_at),
    updated_at = max(updated_at, :updated_at)
WHERE message_id = :message_id
