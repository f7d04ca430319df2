-- Takes the id, campaign, key, queue, due time and message of a firing. Stores it when it is new.
-- For a campaign that is loaded the first time.
INSERT INTO schedule_firings (id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope)
VALUES (?1, ?2, ?3, ?4, ?1, ?5, ?5, ?6)
ON CONFLICT (id) DO NOTHING
