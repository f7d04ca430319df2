-- Takes the last time due, a limit, now, the claimer and the end of its claim. Returns the firings it has claimed;
-- those that others are claiming are passed over.
WITH due AS (
    SELECT id
    FROM schedule_firings
    WHERE status = 'created' AND deliver_at <= $1
    ORDER BY deliver_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
UPDATE schedule_firings AS firing
SET status = 'queued', queued_at = $3, claimed_by = $4, claimed_until = $5, tries = tries + 1
FROM due
WHERE firing.id = due.id
RETURNING firing.*
