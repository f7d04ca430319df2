-- number. It is at the broker.
DELETE FROM outbox WHERE number = ?
