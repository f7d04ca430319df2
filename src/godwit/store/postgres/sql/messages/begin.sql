-- $1 shard, $2 epoch, $3 seq, $4 time of the last row, $5 rows that were passed over.
-- The first batch of a shard; returns nothing when it is not.
INSERT INTO recorder_position (shard, epoch, seq, at, lost) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING
RETURNING shard
