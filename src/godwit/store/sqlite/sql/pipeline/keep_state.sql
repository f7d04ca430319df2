-- :pipeline, :state. Keeps it in place of what was kept before.
INSERT INTO pipeline_state (pipeline, state) VALUES (:pipeline, :state)
ON CONFLICT (pipeline) DO UPDATE SET state = excluded.state
