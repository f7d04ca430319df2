-- $1 name, $2 type, $3 priority, $4 configuration, $5 when. A queue that was created.
INSERT INTO message_queues (name, type, priority, configuration, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $5)
ON CONFLICT (name) DO UPDATE SET
    type = excluded.type, priority = excluded.priority, configuration = excluded.configuration, status = 'active',
    updated_at = excluded.updated_at
