-- $1 how many at most. Forgets what is remembered no longer; returns the keys.
DELETE FROM idempotency_ledger
WHERE key IN (SELECT key FROM idempotency_ledger WHERE expires_at <= now() ORDER BY expires_at LIMIT $1)
RETURNING key
