-- Takes a campaign, and how many firings were planned and cancelled.
UPDATE campaigns SET planned = planned + $2, cancelled = cancelled + $3, updated_at = now() WHERE name = $1
