-- Takes a rule's id and an instant. Returns the ids of its firings later than that, locked.
SELECT id FROM schedule_firings WHERE schedule_id = ?1 AND fire_at > ?2
