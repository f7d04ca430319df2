-- status, queue, status. Says whether it is held back.
UPDATE message_queues SET status = ? WHERE name = ? AND status <> ?
