-- $1 pipeline, $2 shard, $3 epoch, $4 seq, $5 former. Gives the epoch of a position another name, unless it has moved.
UPDATE pipeline_position SET epoch = $5
WHERE pipeline = $1 AND shard = $2 AND epoch = $3 AND seq = $4
RETURNING shard
