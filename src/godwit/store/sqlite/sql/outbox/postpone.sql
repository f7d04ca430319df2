-- due time, why, number. The broker did not take it.
UPDATE outbox SET due_at = ?, error = ? WHERE number = ?
