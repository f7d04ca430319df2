-- :pipeline. Forgets its position.
DELETE FROM pipeline_position WHERE pipeline = :pipeline
