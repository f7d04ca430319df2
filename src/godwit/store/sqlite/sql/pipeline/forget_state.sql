-- :pipeline. Forgets what it keeps besides its position.
DELETE FROM pipeline_state WHERE pipeline = :pipeline
