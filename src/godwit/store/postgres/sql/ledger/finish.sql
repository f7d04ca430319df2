-- $1 key, $2 holder, $3 result, $4 how long it is remembered. Returns nothing when somebody else has the key now.
UPDATE idempotency_ledger SET status = 'done', result = $3, expires_at = now() + $4, updated_at = now()
WHERE key = $1 AND holder = $2 AND status = 'claimed'
RETURNING key
