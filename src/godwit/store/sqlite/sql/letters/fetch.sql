-- letter id. Returns it, if it exists.
SELECT letter_id, queue_name, consumer_group, dead_letter_queue, message_id, publish_seq, type, kind, error_fingerprint,
    attempt, failures, crashes, dead_at, body
FROM kept_letters
WHERE letter_id = ?
