-- due time, now, number. Nobody else takes it until then.
UPDATE outbox SET due_at = ?, tried_at = ?, tries = tries + 1 WHERE number = ?
