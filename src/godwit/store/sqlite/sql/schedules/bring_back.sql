-- Takes ids and now. Copies published firings out of history to be cancelled; returns where their messages may be.
INSERT INTO schedule_firings (
    id, schedule_id, campaign, key, queue_name, message_id, fire_at, deliver_at, status, claimed_until, queued_at,
    published_at, tries, created_at
)
SELECT id, schedule_id, campaign, key, queue_name, message_id, fire_at, deliver_at, 'cancelling', ?2, queued_at,
    published_at, tries, created_at
FROM schedule_firings_history
WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'published'
RETURNING id, queue_name, message_id
