-- :name of a queue or dead letter queue, :group or NULL, :after (a letter id) or NULL, :limit.
-- Returns letters, oldest first.
SELECT letter_id, queue_name, consumer_group, dead_letter_queue, message_id, publish_seq, type, kind, error_fingerprint,
    attempt, failures, crashes, dead_at, body
FROM kept_letters
WHERE
    (queue_name = :name OR dead_letter_queue = :name)
    AND (:group IS NULL OR consumer_group = :group)
    AND number > coalesce((SELECT number FROM kept_letters WHERE letter_id = :after), 0)
ORDER BY number
LIMIT :limit
