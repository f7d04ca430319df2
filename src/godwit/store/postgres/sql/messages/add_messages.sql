-- Adds messages that arrived and are open. One whose id is open already (published again after the dedup window,
-- replayed, or fed to another queue) follows its newest arrival.
INSERT INTO queue_messages (
    queue_name, message_id, type, priority, payload, metadata, status, retry_count, max_retries, scheduled_at,
    expires_at, created_at, updated_at, ended_as
)
SELECT
    queue_name, message_id, type, priority, payload, metadata, status, retry_count, max_retries, scheduled_at,
    expires_at, created_at, updated_at, ended_as
FROM incoming_messages
ON CONFLICT (message_id) DO UPDATE SET
    queue_name = excluded.queue_name,
    type = excluded.type,
    priority = excluded.priority,
    payload = CASE WHEN excluded.payload = 'null' THEN queue_messages.payload ELSE excluded.payload END,
    metadata = CASE WHEN excluded.metadata = '{}' THEN queue_messages.metadata ELSE excluded.metadata END,
    status = godwit_ranked(least(godwit_rank(queue_messages.status), godwit_rank(excluded.status))),
    retry_count = greatest(queue_messages.retry_count, excluded.retry_count),
    max_retries = excluded.max_retries,
    scheduled_at = excluded.scheduled_at,
    expires_at = excluded.expires_at,
    updated_at = excluded.updated_at,
    ended_as = godwit_ranked(least(godwit_rank(queue_messages.ended_as), godwit_rank(excluded.ended_as)))
