-- Takes a campaign. Moves a copied batch into its firings; returns how many of it were new. For a campaign that is loaded the first time.
WITH added AS (
    INSERT INTO schedule_firings (id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope)
    SELECT id, $1, key, queue_name, id::text, deliver_at, deliver_at, envelope
    FROM pg_temp.loading
    ON CONFLICT (id) DO NOTHING
    RETURNING 1
)
SELECT count(*) FROM added
