-- Takes a limit and a rule's id. Returns its firings by their time, without their messages.
SELECT id, schedule_id, campaign, key, queue_name, message_id, fire_at, deliver_at, NULL::bytea AS envelope, status,
    queued_at, published_at, tries, error
FROM schedule_firings
WHERE schedule_id = $2
ORDER BY fire_at
LIMIT $1
