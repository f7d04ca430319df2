-- Where changes of copies that are already known wait for the statements that carry them out; NULL: stays as it was.
CREATE TEMPORARY TABLE IF NOT EXISTS incoming_deliveries (
    queue_name TEXT, consumer_group TEXT, publish_seq INTEGER, message_id TEXT, status TEXT, retry_count INTEGER,
    attempt INTEGER, failures INTEGER, crashes INTEGER, worker TEXT, delivery_id TEXT, ready_at INTEGER,
    delivered_at INTEGER, lease_until INTEGER, run_ms INTEGER, error_kind TEXT, error_fingerprint TEXT, result TEXT,
    updated_at INTEGER, finished_at INTEGER, superseded INTEGER
)
