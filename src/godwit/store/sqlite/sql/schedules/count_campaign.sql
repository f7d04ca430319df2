-- Takes a campaign, and how many firings were planned and cancelled.
UPDATE campaigns
SET planned = planned + ?2, cancelled = cancelled + ?3, updated_at = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
WHERE name = ?1
