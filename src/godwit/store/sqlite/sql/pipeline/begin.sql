-- :pipeline, :shard, :epoch, :seq. Lets a pipeline begin there; what it has got to already stays.
INSERT INTO pipeline_position (pipeline, shard, epoch, seq) VALUES (:pipeline, :shard, :epoch, :seq)
ON CONFLICT (pipeline, shard) DO NOTHING
