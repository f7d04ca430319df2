-- Notes how the worst of each message's copies ended that end now. A status that stands earlier in the list is worse.
INSERT INTO temp.ended_messages (message_id, rank, retry_count, processed_at)
SELECT
    open.message_id,
    min(CASE WHEN NOT new.superseded THEN instr('scheduled pending processing failed expired cancelled completed ', coalesce(new.status, open.status)) END),
    max(CASE WHEN NOT new.superseded THEN coalesce(new.retry_count, open.retry_count) END),
    max(CASE WHEN new.status = 'completed' THEN new.finished_at END)
FROM temp.incoming_deliveries AS new
CROSS JOIN queue_deliveries AS open
WHERE
    new.finished_at IS NOT NULL
    AND open.queue_name = new.queue_name
    AND open.consumer_group = new.consumer_group
    AND open.publish_seq = new.publish_seq
GROUP BY open.message_id
