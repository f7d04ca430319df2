-- Takes a run and a range of ids. Changes what nobody has claimed and the plan has otherwise.
UPDATE schedule_firings
SET fire_at = new.deliver_at, deliver_at = new.deliver_at, envelope = new.envelope
FROM staging_plan AS new
WHERE new.run_id = ?1 AND new.id > ?2 AND new.id <= ?3 AND schedule_firings.id = new.id
    AND schedule_firings.status IN ('created', 'refused', 'paused')
    AND (schedule_firings.deliver_at <> new.deliver_at OR schedule_firings.envelope <> new.envelope)
