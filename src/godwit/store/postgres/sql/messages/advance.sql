-- $1 shard, $2 epoch and $3 seq before, $4 epoch and $5 seq after, $6 time of the last row, $7 rows that were passed over.
-- Moves the position; returns nothing when it is not where the caller thinks: another recorder was here.
UPDATE recorder_position SET epoch = $4, seq = $5, at = $6, lost = lost + $7, updated_at = now()
WHERE shard = $1 AND epoch = $2 AND seq = $3
RETURNING shard
