-- $1 ids, $2 queues, $3 groups, $4 dead letter queues, $5 message ids, $6 publish seqs, $7 types, $8 kinds,
-- $9 fingerprints, $10 attempts, $11 failures, $12 crashes, $13 times, $14 bodies.
-- Keeps letters in order; one that is there already stays as it is.
INSERT INTO kept_letters (
    letter_id, queue_name, consumer_group, dead_letter_queue, message_id, publish_seq, type, kind, error_fingerprint,
    attempt, failures, crashes, dead_at, body
)
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::text[],
    $10::int[], $11::int[], $12::int[], $13::timestamptz[], $14::bytea[]
)
ON CONFLICT (letter_id) DO NOTHING
