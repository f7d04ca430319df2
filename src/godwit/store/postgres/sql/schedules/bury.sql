-- Takes ids and now. Moves those that nobody has claimed to history as cancelled; returns their ids.
WITH over AS (
    DELETE FROM schedule_firings
    WHERE id = ANY($1::uuid[]) AND status IN ('created', 'refused', 'paused')
    RETURNING *
)
INSERT INTO schedule_firings_history (
    id, schedule_id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope, status, claimed_by,
    claimed_until, queued_at, published_at, tries, error, created_at, finished_at
)
SELECT id, schedule_id, campaign, key, queue_name, message_id, fire_at, deliver_at, NULL, 'cancelled', NULL,
    NULL, NULL, NULL, tries, NULL, created_at, $2
FROM over
RETURNING id
