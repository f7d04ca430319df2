-- :key, :holder, :result, :now, :expires_at. Changes nothing when somebody else has the key now.
UPDATE idempotency_ledger SET status = 'done', result = :result, expires_at = :expires_at, updated_at = :now
WHERE key = :key AND holder = :holder AND status = 'claimed'
