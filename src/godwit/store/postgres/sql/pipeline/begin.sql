-- $1 pipeline, $2 shards, $3 epochs, $4 seqs. Lets a pipeline begin there; what it has got to already stays.
INSERT INTO pipeline_position (pipeline, shard, epoch, seq)
SELECT $1, shard, epoch, seq FROM unnest($2::text[], $3::text[], $4::bigint[]) AS new (shard, epoch, seq)
ON CONFLICT (pipeline, shard) DO NOTHING
