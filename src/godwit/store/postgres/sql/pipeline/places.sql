-- Returns how far all pipelines have got; times in ms.
SELECT
    pipeline, shard, epoch, seq,
    (extract(epoch FROM at) * 1000)::bigint AS at_ms,
    (extract(epoch FROM updated_at) * 1000)::bigint AS updated_at_ms
FROM pipeline_position
ORDER BY pipeline, shard
