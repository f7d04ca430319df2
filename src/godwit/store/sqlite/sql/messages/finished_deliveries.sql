-- message id. Returns its copies that have ended, the newest of each group first.
SELECT
    queue_name, consumer_group, publish_seq, status, retry_count, processed_at, attempt, failures, crashes, worker,
    ready_at, delivered_at, lease_until, run_ms, error_kind, error_fingerprint, result, updated_at, finished_at AS finished_at
FROM queue_deliveries_history
WHERE message_id = ?
ORDER BY consumer_group, publish_seq DESC, finished_at DESC
