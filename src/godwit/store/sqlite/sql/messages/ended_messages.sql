-- Where it is noted how the worst of a message's copies ended that end now.
CREATE TEMPORARY TABLE IF NOT EXISTS ended_messages (
    message_id TEXT PRIMARY KEY, rank INTEGER, retry_count INTEGER, processed_at INTEGER
) WITHOUT ROWID
