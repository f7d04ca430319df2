-- shard, epoch, seq, time of the last row, rows passed over. The first batch of a shard; changes nothing when it is not.
INSERT INTO recorder_position (shard, epoch, seq, at, lost) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
