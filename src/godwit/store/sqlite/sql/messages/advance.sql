-- epoch, seq and time after, rows passed over, shard, epoch and seq before. Changes nothing when another recorder was here.
UPDATE recorder_position
SET epoch = ?, seq = ?, at = ?, lost = lost + ?, updated_at = (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
WHERE shard = ? AND epoch = ? AND seq = ?
