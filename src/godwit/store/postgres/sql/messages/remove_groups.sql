-- $1 queue, $2 group or NULL. Their rows, and those of their members.
DELETE FROM consumer_groups WHERE queue_name = $1 AND ($2::text IS NULL OR name = $2)
