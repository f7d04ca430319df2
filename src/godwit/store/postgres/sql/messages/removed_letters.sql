-- $1 queue, $2 group or NULL, $3 and $4 the first and last publish_seq of their partition.
-- Dead letters that went with their queue or group.
DELETE FROM dead_letters
WHERE queue_name = $1 AND ($2::text IS NULL OR consumer_group = $2) AND publish_seq BETWEEN $3 AND $4
