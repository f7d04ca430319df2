-- :pipeline, :shard, :epoch, :seq, :former. Gives the epoch of a position another name, unless the position has moved.
UPDATE pipeline_position SET epoch = :former
WHERE pipeline = :pipeline AND shard = :shard AND epoch = :epoch AND seq = :seq
