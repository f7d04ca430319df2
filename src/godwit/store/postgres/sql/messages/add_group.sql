-- $1 name, $2 queue, $3 configuration, $4 when. A group that was created.
INSERT INTO consumer_groups (name, queue_name, configuration, created_at, updated_at)
VALUES ($1, $2, $3, $4, $4)
ON CONFLICT (name, queue_name) DO UPDATE SET
    configuration = excluded.configuration, status = 'active', updated_at = excluded.updated_at
