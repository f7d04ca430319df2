-- $1 queue, $2 group, $3 status. Says whether it is held back.
UPDATE consumer_groups SET status = $3, updated_at = now() WHERE queue_name = $1 AND name = $2 AND status <> $3
