-- Writes copies that ended to history; `delete_deliveries` follows.
INSERT INTO queue_deliveries_history (
    queue_name, consumer_group, publish_seq, message_id, status, retry_count, processed_at, attempt, failures, crashes,
    worker, ready_at, delivered_at, run_ms, error_kind, error_fingerprint, result, updated_at, finished_at
)
SELECT
    open.queue_name, open.consumer_group, open.publish_seq, open.message_id, coalesce(new.status, open.status),
    coalesce(new.retry_count, open.retry_count), CASE WHEN new.status = 'completed' THEN new.finished_at END,
    coalesce(new.attempt, open.attempt), coalesce(new.failures, open.failures), coalesce(new.crashes, open.crashes),
    coalesce(new.worker, open.worker), coalesce(new.ready_at, open.ready_at),
    coalesce(new.delivered_at, open.delivered_at), coalesce(new.run_ms, open.run_ms),
    coalesce(new.error_kind, open.error_kind), coalesce(new.error_fingerprint, open.error_fingerprint),
    coalesce(new.result, open.result), new.updated_at, new.finished_at
FROM temp.incoming_deliveries AS new
CROSS JOIN queue_deliveries AS open
WHERE
    new.finished_at IS NOT NULL
    AND open.queue_name = new.queue_name
    AND open.consumer_group = new.consumer_group
    AND open.publish_seq = new.publish_seq
