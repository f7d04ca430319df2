-- A copy that arrived and ended; fields in the order of the columns. The row of values is repeated as often as there are rows.
INSERT INTO queue_deliveries_history (
    queue_name, consumer_group, publish_seq, message_id, status, retry_count, attempt, failures, crashes, worker,
    delivery_id, ready_at, delivered_at, lease_until, run_ms, error_kind, error_fingerprint, result, updated_at,
    processed_at, finished_at
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
