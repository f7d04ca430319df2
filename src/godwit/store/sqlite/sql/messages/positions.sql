-- Returns how far the recorder has got in each shard, and the time of the last row.
SELECT shard, epoch, seq, at FROM recorder_position
