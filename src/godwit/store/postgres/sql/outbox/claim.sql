-- $1 how long they are ours, $2 how many at most. Takes due messages in their order, but none whose ordering key has an
-- earlier message that is not due; another forwarder takes others.
-- Returns them with the time somebody last tried to publish them, if somebody did.
WITH due AS (
    SELECT number, tried_at
    FROM outbox AS one
    WHERE due_at <= now() AND NOT EXISTS (
        SELECT FROM outbox AS earlier
        WHERE earlier.queue_name = one.queue_name AND earlier.ordering_key = one.ordering_key
            AND earlier.number < one.number AND earlier.due_at > now()
    )
    ORDER BY number
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
UPDATE outbox SET due_at = now() + $1, tried_at = now(), tries = tries + 1
FROM due
WHERE outbox.number = due.number
RETURNING outbox.number, outbox.envelope, outbox.tries, due.tried_at AS tried_before
