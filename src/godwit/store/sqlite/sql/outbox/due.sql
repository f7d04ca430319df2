-- now, how many at most. Returns due messages, oldest first.
SELECT number, envelope, tries, tried_at AS tried_before FROM outbox WHERE due_at <= ? ORDER BY due_at, number LIMIT ?
