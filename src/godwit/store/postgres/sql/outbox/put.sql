-- $1 message ids, $2 queues, $3 ordering keys, $4 envelopes. In the application's transaction: adds messages in order.
INSERT INTO outbox (message_id, queue_name, ordering_key, envelope)
SELECT message_id, queue_name, ordering_key, envelope
FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[])
    WITH ORDINALITY AS new (message_id, queue_name, ordering_key, envelope, place)
ORDER BY place
