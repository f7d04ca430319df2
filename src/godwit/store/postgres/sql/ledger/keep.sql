-- $1 key, $2 holder, $3 the holder from now on, $4 how long it may be held, $5 how long it is remembered. Holds a claim
-- for longer; returns nothing when it was lost.
UPDATE idempotency_ledger SET holder = $3, claimed_until = now() + $4, expires_at = now() + $4 + $5, updated_at = now()
WHERE key = $1 AND holder = $2 AND status = 'claimed'
RETURNING key
