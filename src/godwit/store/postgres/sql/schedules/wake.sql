-- Takes now and a limit. Lets refused firings be claimed again whose next try has come; returns their ids.
UPDATE schedule_firings SET status = 'created', claimed_until = NULL
WHERE id IN (
    SELECT id
    FROM schedule_firings
    WHERE status = 'refused' AND claimed_until <= $1
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
RETURNING id
