-- Takes ids, the claimer, an error or null, and the time of the next try or null for at once.
UPDATE schedule_firings
SET status = CASE WHEN $4::timestamptz IS NULL THEN 'created' ELSE 'refused' END,
    claimed_by = NULL, claimed_until = $4, queued_at = NULL, error = $3
WHERE id = ANY($1::uuid[]) AND status = 'queued' AND claimed_by = $2
