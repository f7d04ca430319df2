-- Makes touched messages that are still open as far as their least finished copy.
UPDATE queue_messages AS message
SET
    status = substr('scheduled pending processing failed expired cancelled completed ', rest.rank, instr(substr('scheduled pending processing failed expired cancelled completed ', rest.rank), ' ') - 1),
    ended_as = coalesce(
        CASE
            WHEN instr('scheduled pending processing failed expired cancelled completed ', message.ended_as) <= rest.ended THEN message.ended_as
            ELSE substr('scheduled pending processing failed expired cancelled completed ', rest.ended, instr(substr('scheduled pending processing failed expired cancelled completed ', rest.ended), ' ') - 1)
        END,
        message.ended_as
    ),
    retry_count = max(message.retry_count, rest.retry_count),
    processed_at = coalesce(rest.processed_at, message.processed_at),
    updated_at = max(message.updated_at, rest.at)
FROM (
    SELECT
        touched.message_id,
        min(instr('scheduled pending processing failed expired cancelled completed ', open.status)) AS rank,
        max(max(open.retry_count), coalesce(ended.retry_count, 0)) AS retry_count,
        ended.rank AS ended,
        ended.processed_at,
        touched.at
    FROM temp.touched_messages AS touched
    CROSS JOIN queue_deliveries AS open ON open.message_id = touched.message_id
    LEFT JOIN temp.ended_messages AS ended ON ended.message_id = touched.message_id
    GROUP BY touched.message_id
) AS rest
WHERE message.message_id = rest.message_id
