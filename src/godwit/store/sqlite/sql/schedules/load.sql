-- Takes a firing of a campaign that is loaded the first time. Stores it when it is new.
INSERT INTO schedule_firings (id, schedule_id, campaign, key, queue_name, message_id, fire_at, deliver_at, envelope)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (id) DO NOTHING
