-- $1 queue, $2 group or NULL. Dead letters that went with their queue or group.
DELETE FROM dead_letters WHERE queue_name = $1 AND ($2::text IS NULL OR consumer_group = $2)
