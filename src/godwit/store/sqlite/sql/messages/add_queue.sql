-- name, type, priority, configuration, when, when. A queue that was created.
INSERT INTO message_queues (name, type, priority, configuration, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
    type = excluded.type, priority = excluded.priority, configuration = excluded.configuration, status = 'active',
    updated_at = excluded.updated_at
