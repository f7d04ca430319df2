-- Takes ids and now. Returns ids of firings that were published for a time to come.
SELECT id
FROM schedule_firings_history
WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'published' AND deliver_at > ?2
