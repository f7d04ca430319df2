-- name, queue, configuration, when, when. A group that was created.
INSERT INTO consumer_groups (name, queue_name, configuration, created_at, updated_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name, queue_name) DO UPDATE SET
    configuration = excluded.configuration, status = 'active', updated_at = excluded.updated_at
