-- Where changes of copies that are already known wait for the statements that carry them out; NULL: stays as it was.
CREATE TEMPORARY TABLE IF NOT EXISTS incoming_deliveries (
    queue_name text, consumer_group text, publish_seq bigint, message_id text, status text, retry_count int,
    attempt int, failures int, crashes int, worker text, delivery_id text, ready_at timestamptz,
    delivered_at timestamptz, lease_until timestamptz, run_ms int, error_kind text, error_fingerprint text,
    result jsonb, updated_at timestamptz, finished_at timestamptz, superseded boolean
) ON COMMIT DELETE ROWS
