-- Takes ids. Deletes those that nobody has claimed; returns their ids.
DELETE FROM schedule_firings WHERE id IN (SELECT value FROM json_each(?1)) AND status IN ('created', 'refused', 'paused') RETURNING id
