-- Takes a run, a campaign, a queue and a range of ids. Adds what is new and did not fire before.
INSERT INTO schedule_firings (id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope)
SELECT new.id, ?2, new.key, ?3, new.id, new.deliver_at, new.deliver_at, new.envelope
FROM staging_plan AS new
WHERE new.run_id = ?1 AND new.id > ?4 AND new.id <= ?5
    AND NOT EXISTS (
        SELECT 1 FROM schedule_firings_history AS over WHERE over.id = new.id AND over.status <> 'cancelled'
    )
ON CONFLICT (id) DO NOTHING
