-- Changes the copies that are still open.
UPDATE queue_deliveries AS open
SET
    status = coalesce(new.status, open.status),
    retry_count = coalesce(new.retry_count, open.retry_count),
    attempt = coalesce(new.attempt, open.attempt),
    failures = coalesce(new.failures, open.failures),
    crashes = coalesce(new.crashes, open.crashes),
    worker = coalesce(new.worker, open.worker),
    delivery_id = CASE
        WHEN coalesce(new.status, open.status) = 'processing' THEN coalesce(new.delivery_id, open.delivery_id)
    END,
    lease_until = CASE
        WHEN coalesce(new.status, open.status) = 'processing' THEN coalesce(new.lease_until, open.lease_until)
    END,
    ready_at = coalesce(new.ready_at, open.ready_at),
    delivered_at = coalesce(new.delivered_at, open.delivered_at),
    run_ms = coalesce(new.run_ms, open.run_ms),
    error_kind = coalesce(new.error_kind, open.error_kind),
    error_fingerprint = coalesce(new.error_fingerprint, open.error_fingerprint),
    updated_at = new.updated_at
FROM temp.incoming_deliveries AS new
WHERE
    new.finished_at IS NULL
    AND open.queue_name = new.queue_name
    AND open.consumer_group = new.consumer_group
    AND open.publish_seq = new.publish_seq
