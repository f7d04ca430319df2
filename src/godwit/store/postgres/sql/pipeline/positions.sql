-- $1 pipeline. Returns how far it has got, by shard.
SELECT shard, epoch, seq FROM pipeline_position WHERE pipeline = $1 ORDER BY shard
