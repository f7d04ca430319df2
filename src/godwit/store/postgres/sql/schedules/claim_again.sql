-- Takes now, a limit, the claimer and the end of its claim. Returns firings whose claim had run out unconfirmed.
WITH stale AS (
    SELECT id
    FROM schedule_firings
    WHERE status = 'queued' AND claimed_until <= $1
    ORDER BY queued_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
UPDATE schedule_firings AS firing
SET claimed_by = $3, claimed_until = $4, tries = tries + 1
FROM stale
WHERE firing.id = stale.id
RETURNING firing.*
