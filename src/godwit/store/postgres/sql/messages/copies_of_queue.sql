-- $1 queue. Returns the addresses of its open copies and their message ids.
SELECT queue_name, consumer_group, publish_seq, message_id FROM queue_deliveries WHERE queue_name = $1
