-- Takes a rule's id or null, a campaign or null, and an instant or null. Returns counts and percentiles, in
-- milliseconds, of how much later than planned firings were published.
WITH over AS (
    SELECT status,
        greatest(0, extract(epoch FROM published_at - deliver_at) * 1000)::bigint AS late_ms
    FROM schedule_firings_history
    WHERE ($1::text IS NULL OR schedule_id = $1)
        AND ($2::text IS NULL OR campaign = $2)
        AND ($3::timestamptz IS NULL OR finished_at >= $3)
)
SELECT
    count(*) FILTER (WHERE status = 'published') AS fired,
    count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
    count(*) FILTER (WHERE status = 'published' AND late_ms > 0) AS late,
    percentile_disc(0.50) WITHIN GROUP (ORDER BY late_ms) FILTER (WHERE status = 'published') AS p50_ms,
    percentile_disc(0.95) WITHIN GROUP (ORDER BY late_ms) FILTER (WHERE status = 'published') AS p95_ms,
    percentile_disc(0.99) WITHIN GROUP (ORDER BY late_ms) FILTER (WHERE status = 'published') AS p99_ms,
    max(late_ms) FILTER (WHERE status = 'published') AS max_ms
FROM over
