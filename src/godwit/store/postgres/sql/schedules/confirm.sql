-- Takes ids, the claimer and now. Moves those it still holds to history as published and returns their ids.
WITH over AS (
    DELETE FROM schedule_firings
    WHERE id = ANY($1::uuid[]) AND status = 'queued' AND claimed_by = $2
    RETURNING *
)
INSERT INTO schedule_firings_history (
    id, schedule_id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope, status, claimed_by,
    claimed_until, queued_at, published_at, tries, error, created_at, finished_at
)
SELECT id, schedule_id, campaign, key, queue_name, message_id, fire_at, deliver_at, NULL, 'published', claimed_by,
    NULL, queued_at, $3, tries, NULL, created_at, $3
FROM over
RETURNING id
