-- status, queue, group, status. Says whether it is held back.
UPDATE consumer_groups SET status = ? WHERE queue_name = ? AND name = ? AND status <> ?
