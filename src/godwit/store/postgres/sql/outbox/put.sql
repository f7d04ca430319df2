-- $1 message ids, $2 queues, $3 envelopes. In the application's transaction: adds messages in order.
INSERT INTO outbox (message_id, queue_name, envelope)
SELECT message_id, queue_name, envelope
FROM unnest($1::text[], $2::text[], $3::bytea[]) WITH ORDINALITY AS new (message_id, queue_name, envelope, place)
ORDER BY place
