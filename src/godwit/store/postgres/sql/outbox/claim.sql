-- $1 how long they are ours, $2 how many at most. Takes due messages, oldest first; another forwarder takes others.
-- Returns them with the time somebody last tried to publish them, if somebody did.
WITH due AS (
    SELECT number, tried_at
    FROM outbox
    WHERE due_at <= now()
    ORDER BY due_at, number
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
UPDATE outbox SET due_at = now() + $1, tried_at = now(), tries = tries + 1
FROM due
WHERE outbox.number = due.number
RETURNING outbox.number, outbox.envelope, outbox.tries, due.tried_at AS tried_before
