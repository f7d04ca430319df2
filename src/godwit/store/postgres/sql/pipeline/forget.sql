-- $1 pipeline. Forgets its position; returns the shards it had.
DELETE FROM pipeline_position WHERE pipeline = $1 RETURNING shard
