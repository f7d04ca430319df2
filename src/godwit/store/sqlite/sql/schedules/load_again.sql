-- Takes id, key, queue, due time and message of many firings, then their campaign. Stores those that are new and did
-- not fire before. The row of values is repeated as often as there are firings.
INSERT INTO schedule_firings (id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope)
WITH new (id, key, queue_name, deliver_at, envelope) AS (VALUES (?, ?, ?, ?, ?))
SELECT id, ?, key, queue_name, id, deliver_at, deliver_at, envelope
FROM new
WHERE NOT EXISTS (SELECT 1 FROM schedule_firings_history AS over WHERE over.id = new.id)
ON CONFLICT (id) DO NOTHING
