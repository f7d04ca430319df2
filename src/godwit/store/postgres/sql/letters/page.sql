-- $1 name of a queue or dead letter queue, $2 group or NULL, $3 letter id to begin after or NULL, $4 how many.
-- Returns letters, oldest first.
SELECT letter_id, queue_name, consumer_group, dead_letter_queue, message_id, publish_seq, type, kind, error_fingerprint,
    attempt, failures, crashes, dead_at, body
FROM kept_letters
WHERE
    (queue_name = $1 OR dead_letter_queue = $1)
    AND ($2::text IS NULL OR consumer_group = $2)
    AND number > coalesce((SELECT number FROM kept_letters WHERE letter_id = $3), 0)
ORDER BY number
LIMIT $4
