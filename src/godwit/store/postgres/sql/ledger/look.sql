-- $1 key. Returns what the ledger says about it, and for how long it is still held.
SELECT status, holder, result, greatest(claimed_until - now(), interval '0') AS held_for
FROM idempotency_ledger
WHERE key = $1 AND expires_at > now()
