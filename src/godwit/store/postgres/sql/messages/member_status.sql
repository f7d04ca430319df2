-- $1 queue, $2 group, $3 instance, $4 status, $5 last heartbeat. Says how a member is; a new one gets its row.
INSERT INTO consumer_instances AS member (consumer_group_id, instance_id, status, last_heartbeat)
SELECT id, $3, $4, $5 FROM consumer_groups WHERE queue_name = $1 AND name = $2
ON CONFLICT (consumer_group_id, instance_id) DO UPDATE SET
    status = excluded.status,
    last_heartbeat = greatest(member.last_heartbeat, excluded.last_heartbeat),
    updated_at = now()
