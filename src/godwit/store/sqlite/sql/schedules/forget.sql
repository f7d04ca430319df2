-- Takes an instant. Deletes rules that ended before it.
DELETE FROM schedules WHERE status IN ('done', 'cancelled') AND updated_at < ?1
