-- Takes a run and one message of a plan. A message that a task stages again is there once.
INSERT INTO staging_plan (run_id, id, key, deliver_at, envelope) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING
