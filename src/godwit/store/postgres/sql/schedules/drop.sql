-- Takes ids. Deletes those that nobody has claimed; returns their ids.
DELETE FROM schedule_firings WHERE id = ANY($1::uuid[]) AND status IN ('created', 'refused', 'paused') RETURNING id
