-- Returns how far all pipelines have got; times in ms.
SELECT pipeline, shard, epoch, seq, at AS at_ms, updated_at AS updated_at_ms
FROM pipeline_position ORDER BY pipeline, shard
