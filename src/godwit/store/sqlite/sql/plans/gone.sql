-- Takes a run, a campaign, start, end and a limit. Returns ids of firings that are no longer planned.
SELECT old.id
FROM schedule_firings AS old
WHERE old.campaign = ?2 AND old.deliver_at >= ?3 AND old.deliver_at < ?4 AND old.status <> 'cancelling'
    AND NOT EXISTS (SELECT 1 FROM staging_plan AS new WHERE new.run_id = ?1 AND new.id = old.id)
LIMIT ?5
