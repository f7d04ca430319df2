-- Takes a rule's id or null, a campaign or null, and an instant or null. Returns counts and percentiles, in
-- milliseconds, of how much later than planned firings were published.
WITH over AS (
    SELECT status, max(0, published_at - deliver_at) AS late_ms
    FROM schedule_firings_history
    WHERE (?1 IS NULL OR schedule_id = ?1)
        AND (?2 IS NULL OR campaign = ?2)
        AND (?3 IS NULL OR finished_at >= ?3)
),
ranked AS (
    SELECT late_ms, cume_dist() OVER (ORDER BY late_ms) AS share FROM over WHERE status = 'published'
)
SELECT
    (SELECT count(*) FROM over WHERE status = 'published') AS fired,
    (SELECT count(*) FROM over WHERE status = 'cancelled') AS cancelled,
    (SELECT count(*) FROM over WHERE status = 'published' AND late_ms > 0) AS late,
    (SELECT min(late_ms) FROM ranked WHERE share >= 0.50) AS p50_ms,
    (SELECT min(late_ms) FROM ranked WHERE share >= 0.95) AS p95_ms,
    (SELECT min(late_ms) FROM ranked WHERE share >= 0.99) AS p99_ms,
    (SELECT max(late_ms) FROM ranked) AS max_ms
