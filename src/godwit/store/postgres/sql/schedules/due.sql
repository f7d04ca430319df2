-- Takes an instant, a limit and ids. Returns rules that fire by then, locked; those of the ids, and those that others
-- look at, are passed over.
SELECT *
FROM schedules
WHERE status = 'active' AND next_fire_at <= $1 AND id <> ALL ($3::text[])
ORDER BY next_fire_at
LIMIT $2
FOR UPDATE SKIP LOCKED
