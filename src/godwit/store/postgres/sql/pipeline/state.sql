-- $1 pipeline. Returns what it keeps besides its position.
SELECT state FROM pipeline_state WHERE pipeline = $1
