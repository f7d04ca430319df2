-- :key, :holder. Gives a claim back: the effect did not happen.
DELETE FROM idempotency_ledger WHERE key = :key AND holder = :holder AND status = 'claimed'
