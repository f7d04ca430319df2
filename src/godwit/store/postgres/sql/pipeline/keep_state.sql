-- $1 pipeline, $2 state. Keeps it in place of what was kept before.
INSERT INTO pipeline_state (pipeline, state) VALUES ($1, $2)
ON CONFLICT (pipeline) DO UPDATE SET state = excluded.state
