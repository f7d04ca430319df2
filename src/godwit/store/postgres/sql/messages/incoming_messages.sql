-- Where messages that arrived wait for the statement that adds them.
CREATE TEMPORARY TABLE IF NOT EXISTS incoming_messages (
    queue_name text, message_id text, type text, priority int, payload jsonb, metadata jsonb, status text,
    retry_count int, max_retries int, scheduled_at timestamptz, expires_at timestamptz, created_at timestamptz,
    updated_at timestamptz, ended_as text
) ON COMMIT DELETE ROWS
