-- Takes a rule's id and an instant. Returns ids of its firings later than that which were published.
SELECT id
FROM schedule_firings_history
WHERE schedule_id = $1 AND fire_at > $2 AND status = 'published'
