-- :now, :limit. Returns due messages in their order, but none whose ordering key has an earlier message that is not due.
SELECT number, envelope, tries, tried_at AS tried_before
FROM outbox AS one
WHERE due_at <= :now AND NOT EXISTS (
    SELECT 1 FROM outbox AS earlier
    WHERE earlier.queue_name = one.queue_name AND earlier.ordering_key = one.ordering_key
        AND earlier.number < one.number AND earlier.due_at > :now
)
ORDER BY number
LIMIT :limit
