-- $1 queue. Its row; the groups have gone before.
DELETE FROM message_queues WHERE name = $1
