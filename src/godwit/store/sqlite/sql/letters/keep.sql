-- Keeps a letter (fields in the order of the columns); one that is there already stays as it is.
INSERT INTO kept_letters (
    letter_id, queue_name, consumer_group, dead_letter_queue, message_id, publish_seq, type, kind, error_fingerprint,
    attempt, failures, crashes, dead_at, body
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (letter_id) DO NOTHING
