-- Takes now. Returns how many firings and rules are overdue, up to 100,000, and since when.
SELECT count(*) AS count, min(due_at) AS oldest
FROM (
    (
        SELECT deliver_at AS due_at FROM schedule_firings
        WHERE status = 'created' AND deliver_at <= $1
        ORDER BY deliver_at
        LIMIT 100000
    )
    UNION ALL
    (
        SELECT next_fire_at FROM schedules
        WHERE status = 'active' AND next_fire_at <= $1
        ORDER BY next_fire_at
        LIMIT 100000
    )
) AS due
