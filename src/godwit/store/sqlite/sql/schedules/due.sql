-- Takes an instant and a limit. Returns rules that fire by then; the transaction around it keeps others away.
SELECT *
FROM schedules
WHERE status = 'active' AND next_fire_at <= ?1
ORDER BY next_fire_at
LIMIT ?2
