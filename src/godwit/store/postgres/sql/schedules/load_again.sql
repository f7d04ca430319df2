-- Moves a copied batch of a campaign into its firings, but for what waits or fired before; returns how many of it were new.
WITH added AS (
    INSERT INTO schedule_firings (id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope)
    SELECT id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope
    FROM pg_temp.loading AS new
    WHERE NOT EXISTS (SELECT 1 FROM schedule_firings_history AS over WHERE over.id = new.id)
    ON CONFLICT (id) DO NOTHING
    RETURNING 1
)
SELECT count(*) FROM added
