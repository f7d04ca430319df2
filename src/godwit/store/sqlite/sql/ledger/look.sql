-- :key, :now. Returns what the ledger says about it.
SELECT status, holder, result, claimed_until FROM idempotency_ledger WHERE key = :key AND expires_at > :now
