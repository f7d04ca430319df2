-- Takes firings as arrays. Returns the ids of those that are new: not waiting, and not over unless cancelled.
INSERT INTO schedule_firings (id, schedule_id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope)
SELECT new.*
FROM unnest(
    $1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::timestamptz[],
    $9::bytea[]
) AS new (id, schedule_id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope)
WHERE NOT EXISTS (
    SELECT 1 FROM schedule_firings_history AS over WHERE over.id = new.id AND over.status <> 'cancelled'
)
ON CONFLICT (id) DO NOTHING
RETURNING id
