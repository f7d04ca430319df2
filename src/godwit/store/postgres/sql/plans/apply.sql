-- $1 run, $2 campaign, $3 queue. Adds what is new and did not fire before, and changes what nobody has claimed.
-- What is there as planned is left out first: a conflict locks its row, which costs as much as changing it.
-- Returns how many were added and how many changed.
WITH done AS (
    INSERT INTO schedule_firings (id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope)
    SELECT DISTINCT ON (new.id) new.id, $2, new.key, $3, new.id::text, new.deliver_at, new.deliver_at, new.envelope
    FROM staging_plan AS new
    LEFT JOIN schedule_firings AS old ON old.id = new.id
    WHERE new.run_id = $1
        AND (old.id IS NULL OR (old.deliver_at, old.envelope) IS DISTINCT FROM (new.deliver_at, new.envelope))
        AND NOT EXISTS (
            SELECT 1 FROM schedule_firings_history AS over WHERE over.id = new.id AND over.status <> 'cancelled'
        )
    ON CONFLICT (id) DO UPDATE
    SET fire_at = excluded.fire_at, deliver_at = excluded.deliver_at, envelope = excluded.envelope
    WHERE schedule_firings.status IN ('created', 'refused', 'paused')
        AND (schedule_firings.deliver_at, schedule_firings.envelope) IS DISTINCT FROM (excluded.deliver_at, excluded.envelope)
    RETURNING xmax = 0 AS fresh
)
SELECT count(*) FILTER (WHERE fresh) AS added, count(*) FILTER (WHERE NOT fresh) AS moved FROM done
