-- $1 campaign, $2 how many firings were added. Counts them; returns nothing when the campaign was cancelled.
UPDATE campaigns SET planned = planned + $2, updated_at = now() WHERE name = $1 AND status <> 'cancelled' RETURNING name
