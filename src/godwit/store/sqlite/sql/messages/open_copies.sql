-- message id. Returns status, retries and last change of its open copies.
SELECT status, retry_count, updated_at FROM queue_deliveries WHERE message_id = ?
