-- :facts of a copy that ended; NULL: stays as it was. Writes it to history; `delete_delivery` follows.
INSERT INTO queue_deliveries_history (
    queue_name, consumer_group, publish_seq, message_id, status, retry_count, processed_at, attempt, failures, crashes,
    worker, ready_at, delivered_at, run_ms, error_kind, error_fingerprint, result, updated_at, finished_at
)
SELECT
    queue_name, consumer_group, publish_seq, message_id, coalesce(:status, status),
    coalesce(:retry_count, retry_count), CASE WHEN :status = 'completed' THEN :finished_at END,
    coalesce(:attempt, attempt), coalesce(:failures, failures), coalesce(:crashes, crashes),
    coalesce(:worker, worker), coalesce(:ready_at, ready_at), coalesce(:delivered_at, delivered_at),
    coalesce(:run_ms, run_ms), coalesce(:error_kind, error_kind), coalesce(:error_fingerprint, error_fingerprint),
    coalesce(:result, result), :updated_at, :finished_at
FROM queue_deliveries
WHERE queue_name = :queue_name AND consumer_group = :consumer_group AND publish_seq = :publish_seq
