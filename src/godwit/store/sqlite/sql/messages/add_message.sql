-- A message that arrived and is open. One whose id is open already (published again after the dedup window, replayed,
-- or fed to another queue) follows its newest arrival. The row of values is repeated as often as there are messages.
INSERT INTO queue_messages (
    id, queue_name, message_id, type, priority, payload, metadata, retry_count, max_retries, scheduled_at, expires_at,
    created_at, updated_at, status, ended_as
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (message_id) DO UPDATE SET
    queue_name = excluded.queue_name,
    type = excluded.type,
    priority = excluded.priority,
    payload = CASE WHEN excluded.payload = 'null' THEN payload ELSE excluded.payload END,
    metadata = CASE WHEN excluded.metadata = '{}' THEN metadata ELSE excluded.metadata END,
    status = CASE
        WHEN instr('scheduled pending processing failed expired cancelled completed ', status) <= instr('scheduled pending processing failed expired cancelled completed ', excluded.status)
            THEN status
        ELSE excluded.status
    END,
    ended_as = coalesce(
        CASE
            WHEN instr('scheduled pending processing failed expired cancelled completed ', ended_as) <= instr('scheduled pending processing failed expired cancelled completed ', excluded.ended_as)
                THEN ended_as
            ELSE excluded.ended_as
        END,
        ended_as
    ),
    retry_count = max(retry_count, excluded.retry_count),
    max_retries = excluded.max_retries,
    scheduled_at = excluded.scheduled_at,
    expires_at = excluded.expires_at,
    updated_at = excluded.updated_at
