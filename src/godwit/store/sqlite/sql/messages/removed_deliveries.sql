-- :queue, :group or NULL, :dead_too, :first and :last publish_seq of their partition. Returns the addresses of the copies a removal or purge took away.
SELECT queue_name, consumer_group, publish_seq, message_id, status
FROM queue_deliveries
WHERE
    queue_name = :queue
    AND (:group IS NULL OR consumer_group = :group)
    AND publish_seq BETWEEN :first AND :last
    AND (:dead_too OR status IN ('scheduled', 'pending'))
