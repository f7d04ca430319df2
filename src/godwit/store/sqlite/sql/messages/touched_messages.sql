-- Where messages whose copies changed wait for the statements that bring them in line.
CREATE TEMPORARY TABLE IF NOT EXISTS touched_messages (message_id TEXT PRIMARY KEY, at INTEGER) WITHOUT ROWID
