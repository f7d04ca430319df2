-- Takes a campaign and a limit. Returns ids of its firings that are not yet being cancelled, locked.
SELECT id
FROM schedule_firings
WHERE campaign = ?1 AND status <> 'cancelling'
LIMIT ?2
