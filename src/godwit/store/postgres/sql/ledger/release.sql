-- $1 key, $2 holder. Gives a claim back: the effect did not happen.
DELETE FROM idempotency_ledger WHERE key = $1 AND holder = $2 AND status = 'claimed'
