-- :queue, :group or NULL, :dead_too. Returns the addresses of the copies a removal or purge took away.
SELECT queue_name, consumer_group, publish_seq, message_id, status
FROM queue_deliveries
WHERE
    queue_name = :queue
    AND (:group IS NULL OR consumer_group = :group)
    AND (:dead_too OR status IN ('scheduled', 'pending'))
