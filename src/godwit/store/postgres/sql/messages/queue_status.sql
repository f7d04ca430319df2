-- $1 queue, $2 status. Says whether it is held back.
UPDATE message_queues SET status = $2, updated_at = now() WHERE name = $1 AND status <> $2
