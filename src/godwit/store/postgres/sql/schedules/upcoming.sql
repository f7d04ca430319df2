-- Takes a limit. Returns firings nobody has claimed by their time, without their messages.
SELECT id, schedule_id, campaign, key, queue_name, message_id, fire_at, deliver_at, NULL::bytea AS envelope, status,
    queued_at, published_at, tries, error
FROM schedule_firings
WHERE status = 'created'
ORDER BY deliver_at
LIMIT $1
