-- A copy that arrived and is open; fields in the order of the columns. The row of values is repeated as often as there are rows.
INSERT INTO queue_deliveries (
    queue_name, consumer_group, publish_seq, message_id, status, retry_count, attempt, failures, crashes, worker,
    delivery_id, ready_at, delivered_at, lease_until, run_ms, error_kind, error_fingerprint, result, updated_at
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
