-- Takes an id. Returns the firing that waits, else the last one of that id that is over.
SELECT *
FROM (
    SELECT id, schedule_id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope, status, queued_at,
        published_at, tries, error, 9223372036854775807 AS finished_at
    FROM schedule_firings
    WHERE id = ?1
    UNION ALL
    SELECT id, schedule_id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope, status, queued_at,
        published_at, tries, error, finished_at
    FROM schedule_firings_history
    WHERE id = ?1
)
ORDER BY finished_at DESC
LIMIT 1
