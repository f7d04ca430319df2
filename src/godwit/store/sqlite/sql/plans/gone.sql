-- Takes a run, a campaign, start, end, a limit and a place. Returns ids of firings that are no longer planned, beyond that place, with theirs.
SELECT old.id, old.rowid AS place
FROM schedule_firings AS old
WHERE old.campaign = ?2 AND old.rowid > ?6 AND old.deliver_at >= ?3 AND old.deliver_at < ?4 AND old.status <> 'cancelling'
    AND NOT EXISTS (SELECT 1 FROM staging_plan AS new WHERE new.run_id = ?1 AND new.id = old.id)
ORDER BY old.rowid
LIMIT ?5
