-- Takes an instant, a limit and ids as JSON. Returns rules that fire by then, but those of the ids; the transaction
-- around it keeps others away.
SELECT *
FROM schedules
WHERE status = 'active' AND next_fire_at <= ?1 AND id NOT IN (SELECT value FROM json_each(?3))
ORDER BY next_fire_at
LIMIT ?2
