-- Returns how far the recorder has got in each shard.
SELECT shard, epoch, seq, at FROM recorder_position
