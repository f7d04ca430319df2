-- :queue, :group or NULL, :first and :last publish_seq of their partition.
-- Dead letters that went with their queue or group.
DELETE FROM dead_letters
WHERE queue_name = :queue AND (:group IS NULL OR consumer_group = :group) AND publish_seq BETWEEN :first AND :last
