-- $1 letter ids. Returns those that exist, oldest first.
SELECT letter_id, queue_name, consumer_group, dead_letter_queue, message_id, publish_seq, type, kind, error_fingerprint,
    attempt, failures, crashes, dead_at, body
FROM kept_letters
WHERE letter_id = ANY ($1::text[])
ORDER BY number
