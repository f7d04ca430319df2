-- $1 queue, $2 group or NULL, $3 whether leased and dead copies are gone too, $4 when, $5 and $6 the first and last
-- publish_seq of their partition.
-- Moves the copies a removal or purge took away to history; returns the ids of their messages.
WITH gone AS (
    DELETE FROM queue_deliveries
    WHERE
        queue_name = $1
        AND ($2::text IS NULL OR consumer_group = $2)
        AND publish_seq BETWEEN $5 AND $6
        AND ($3 OR status IN ('scheduled', 'pending'))
    RETURNING *
),
kept AS (
    INSERT INTO queue_deliveries_history
    SELECT
        queue_name, consumer_group, publish_seq, message_id,
        CASE WHEN status IN ('failed', 'expired') THEN status ELSE 'cancelled' END,
        retry_count, processed_at, attempt, failures, crashes, worker, NULL, ready_at, delivered_at, NULL, run_ms,
        error_kind, error_fingerprint, result, $4, $4
    FROM gone
),
ended AS (
    SELECT
        message_id,
        min(godwit_rank(CASE WHEN status IN ('failed', 'expired') THEN status ELSE 'cancelled' END)) AS rank
    FROM gone
    GROUP BY message_id
),
noted AS (
    UPDATE queue_messages message
    SET ended_as = godwit_ranked(least(godwit_rank(message.ended_as), ended.rank))
    FROM ended
    WHERE message.message_id = ended.message_id
)
SELECT message_id FROM ended
