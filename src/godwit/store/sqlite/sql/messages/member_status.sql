-- instance, status, last heartbeat, queue, group. Says how a member is; a new one gets its row.
INSERT INTO consumer_instances (consumer_group_id, instance_id, status, last_heartbeat)
SELECT id, ?, ?, ? FROM consumer_groups WHERE queue_name = ? AND name = ?
ON CONFLICT (consumer_group_id, instance_id) DO UPDATE SET
    status = excluded.status,
    last_heartbeat = max(last_heartbeat, excluded.last_heartbeat)
