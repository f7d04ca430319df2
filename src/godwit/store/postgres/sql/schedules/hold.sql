-- Takes an id, the status it must have and the one it gets. Returns the id when it had it.
UPDATE schedule_firings SET status = $3 WHERE id = $1 AND status = $2 RETURNING id
