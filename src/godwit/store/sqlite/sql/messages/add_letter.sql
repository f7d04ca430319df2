-- A dead letter; fields in the order of the columns.
INSERT OR REPLACE INTO dead_letters (
    queue_name, consumer_group, publish_seq, message_id, type, kind, error_fingerprint, attempt, failures, crashes,
    worker, dead_at
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
