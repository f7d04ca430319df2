-- :queue, :group or NULL, :dead_too, :first and :last publish_seq of their partition, :at. Lets the copies that a removal
-- or purge took away wait to be ended, as cancelled unless they were dead.
INSERT INTO temp.incoming_deliveries (
    queue_name, consumer_group, publish_seq, message_id, status, updated_at, finished_at, superseded
)
SELECT
    queue_name, consumer_group, publish_seq, message_id,
    CASE WHEN status IN ('failed', 'expired') THEN status ELSE 'cancelled' END, :at, :at, 0
FROM queue_deliveries
WHERE
    queue_name = :queue
    AND (:group IS NULL OR consumer_group = :group)
    AND publish_seq BETWEEN :first AND :last
    AND (:dead_too OR status IN ('scheduled', 'pending'))
