-- Deletes copies that ended, once they are in history.
DELETE FROM queue_deliveries
WHERE (queue_name, consumer_group, publish_seq) IN (
    SELECT queue_name, consumer_group, publish_seq FROM temp.incoming_deliveries WHERE finished_at IS NOT NULL
)
