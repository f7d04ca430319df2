-- Moves the copies that ended from the open table to history, and notes with their messages how the worst ended.
WITH gone AS (
    DELETE FROM queue_deliveries open USING incoming_deliveries new
    WHERE
        new.finished_at IS NOT NULL
        AND open.queue_name = new.queue_name
        AND open.consumer_group = new.consumer_group
        AND open.publish_seq = new.publish_seq
    RETURNING
        open.queue_name, open.consumer_group, open.publish_seq, open.message_id,
        coalesce(new.status, open.status) AS status,
        coalesce(new.retry_count, open.retry_count) AS retry_count,
        CASE WHEN new.status = 'completed' THEN new.finished_at END AS processed_at,
        coalesce(new.attempt, open.attempt) AS attempt,
        coalesce(new.failures, open.failures) AS failures,
        coalesce(new.crashes, open.crashes) AS crashes,
        coalesce(new.worker, open.worker) AS worker,
        coalesce(new.ready_at, open.ready_at) AS ready_at,
        coalesce(new.delivered_at, open.delivered_at) AS delivered_at,
        coalesce(new.run_ms, open.run_ms) AS run_ms,
        coalesce(new.error_kind, open.error_kind) AS error_kind,
        coalesce(new.error_fingerprint, open.error_fingerprint) AS error_fingerprint,
        coalesce(new.result, open.result) AS result,
        new.updated_at, new.finished_at, new.superseded
),
kept AS (
    INSERT INTO queue_deliveries_history (
        queue_name, consumer_group, publish_seq, message_id, status, retry_count, processed_at, attempt, failures,
        crashes, worker, ready_at, delivered_at, run_ms, error_kind, error_fingerprint, result, updated_at, finished_at
    )
    SELECT
        queue_name, consumer_group, publish_seq, message_id, status, retry_count, processed_at, attempt, failures,
        crashes, worker, ready_at, delivered_at, run_ms, error_kind, error_fingerprint, result, updated_at, finished_at
    FROM gone
),
ended AS (
    SELECT
        message_id,
        min(godwit_rank(status)) FILTER (WHERE NOT superseded) AS rank,
        max(retry_count) FILTER (WHERE NOT superseded) AS retry_count,
        max(processed_at) AS processed_at,
        max(updated_at) AS updated_at
    FROM gone
    GROUP BY message_id
)
UPDATE queue_messages message
SET
    ended_as = godwit_ranked(least(godwit_rank(message.ended_as), ended.rank)),
    retry_count = greatest(message.retry_count, ended.retry_count),
    processed_at = coalesce(ended.processed_at, message.processed_at),
    updated_at = greatest(message.updated_at, ended.updated_at)
FROM ended
WHERE message.message_id = ended.message_id
