-- $1 number, $2 how long, $3 why. The broker did not take it.
UPDATE outbox SET due_at = now() + $2, error = $3 WHERE number = $1
