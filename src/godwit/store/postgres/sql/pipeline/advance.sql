-- $1 pipeline, $2 shards, $3 epochs, $4 seqs, $5 times in ms. Moves positions; the caller has compared them.
INSERT INTO pipeline_position (pipeline, shard, epoch, seq, at)
SELECT $1, shard, epoch, seq, to_timestamp(at_ms / 1000.0)
FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[]) AS new (shard, epoch, seq, at_ms)
ON CONFLICT (pipeline, shard)
DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq, at = excluded.at, updated_at = now()
