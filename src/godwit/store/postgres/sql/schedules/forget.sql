-- Takes an instant. Deletes rules that ended before it; returns how many.
WITH gone AS (
    DELETE FROM schedules WHERE status IN ('done', 'cancelled') AND updated_at < $1 RETURNING 1
)
SELECT count(*) FROM gone
