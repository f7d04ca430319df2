-- Writes touched messages without an open copy to history, as the worst of their copies ended; `delete_messages` follows.
INSERT INTO queue_messages_history (
    id, queue_name, message_id, type, priority, payload, metadata, status, retry_count, max_retries, scheduled_at,
    processed_at, expires_at, created_at, updated_at, finished_at
)
SELECT
    message.id, message.queue_name, message.message_id, message.type, message.priority, message.payload,
    message.metadata,
    coalesce(
        CASE
            WHEN instr('scheduled pending processing failed expired cancelled completed ', message.ended_as) <= ended.rank THEN message.ended_as
            ELSE substr('scheduled pending processing failed expired cancelled completed ', ended.rank, instr(substr('scheduled pending processing failed expired cancelled completed ', ended.rank), ' ') - 1)
        END,
        message.ended_as,
        message.status
    ),
    max(message.retry_count, coalesce(ended.retry_count, 0)), message.max_retries, message.scheduled_at,
    coalesce(ended.processed_at, message.processed_at), message.expires_at, message.created_at, touched.at, touched.at
FROM temp.touched_messages AS touched
CROSS JOIN queue_messages AS message ON message.message_id = touched.message_id
LEFT JOIN temp.ended_messages AS ended ON ended.message_id = touched.message_id
WHERE NOT EXISTS (SELECT 1 FROM queue_deliveries AS open WHERE open.message_id = touched.message_id)
