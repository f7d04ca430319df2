-- :pipeline, :shard, :epoch, :last, :at_ms. Moves one position; the caller has compared it.
INSERT INTO pipeline_position (pipeline, shard, epoch, seq, at)
VALUES (:pipeline, :shard, :epoch, :last, :at_ms)
ON CONFLICT (pipeline, shard) DO UPDATE SET
    epoch = excluded.epoch, seq = excluded.seq, at = excluded.at, updated_at = excluded.updated_at
