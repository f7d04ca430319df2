-- :queue_name, :consumer_group, :publish_seq. Returns the status and retries it had.
DELETE FROM queue_deliveries
WHERE queue_name = :queue_name AND consumer_group = :consumer_group AND publish_seq = :publish_seq
RETURNING status, retry_count
