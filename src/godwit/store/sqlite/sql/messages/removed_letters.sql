-- :queue, :group or NULL. Dead letters that went with their queue or group.
DELETE FROM dead_letters WHERE queue_name = :queue AND (:group IS NULL OR consumer_group = :group)
