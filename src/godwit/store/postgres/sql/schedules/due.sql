-- Takes an instant and a limit. Returns rules that fire by then, locked; those that others look at are passed over.
SELECT *
FROM schedules
WHERE status = 'active' AND next_fire_at <= $1
ORDER BY next_fire_at
LIMIT $2
FOR UPDATE SKIP LOCKED
