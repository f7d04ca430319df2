-- Takes ids and now. Returns ids of firings that were published for a time to come.
SELECT id
FROM schedule_firings_history
WHERE id = ANY($1::uuid[]) AND status = 'published' AND deliver_at > $2
