-- Takes a campaign, now and a limit. Returns ids of firings that were published for a time to come.
SELECT id
FROM schedule_firings_history
WHERE campaign = ?1 AND deliver_at > ?2 AND status = 'published'
LIMIT ?3
