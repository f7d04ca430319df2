-- :facts of an open copy; NULL: stays as it was.
UPDATE queue_deliveries
SET
    status = coalesce(:status, status),
    retry_count = coalesce(:retry_count, retry_count),
    attempt = coalesce(:attempt, attempt),
    failures = coalesce(:failures, failures),
    crashes = coalesce(:crashes, crashes),
    worker = coalesce(:worker, worker),
    delivery_id = CASE WHEN coalesce(:status, status) = 'processing' THEN coalesce(:delivery_id, delivery_id) END,
    lease_until = CASE WHEN coalesce(:status, status) = 'processing' THEN coalesce(:lease_until, lease_until) END,
    ready_at = coalesce(:ready_at, ready_at),
    delivered_at = coalesce(:delivered_at, delivered_at),
    run_ms = coalesce(:run_ms, run_ms),
    error_kind = coalesce(:error_kind, error_kind),
    error_fingerprint = coalesce(:error_fingerprint, error_fingerprint),
    updated_at = :updated_at
WHERE queue_name = :queue_name AND consumer_group = :consumer_group AND publish_seq = :publish_seq
