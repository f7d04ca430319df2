-- :key, :holder, :to, :now, :claimed_until, :expires_at. Holds a claim for longer, in the name of `to`; changes nothing
-- when it was lost.
UPDATE idempotency_ledger
SET holder = :to, claimed_until = :claimed_until, expires_at = :expires_at, updated_at = :now
WHERE key = :key AND holder = :holder AND status = 'claimed'
