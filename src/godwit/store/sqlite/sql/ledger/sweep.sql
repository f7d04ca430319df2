-- :now, :limit. Forgets what is remembered no longer.
DELETE FROM idempotency_ledger
WHERE key IN (SELECT key FROM idempotency_ledger WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit)
