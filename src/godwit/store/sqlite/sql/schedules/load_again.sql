-- Takes the id, campaign, key, queue, due time and message of a firing. Stores it when it is new and did not fire before.
INSERT INTO schedule_firings (id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope)
SELECT ?1, ?2, ?3, ?4, ?1, ?5, ?5, ?6
WHERE NOT EXISTS (SELECT 1 FROM schedule_firings_history AS over WHERE over.id = ?1)
ON CONFLICT (id) DO NOTHING
