-- :queue, :group or NULL. Their rows, and those of their members.
DELETE FROM consumer_groups WHERE queue_name = :queue AND (:group IS NULL OR name = :group)
