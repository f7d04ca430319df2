-- :key, :holder, :now, :claimed_until, :expires_at. Claims a key that is new, forgotten, held too long, or held by the
-- same holder; changes nothing when it is not to be had.
INSERT INTO idempotency_ledger (key, holder, claimed_until, expires_at)
VALUES (:key, :holder, :claimed_until, :expires_at)
ON CONFLICT (key) DO UPDATE SET
    status = 'claimed',
    holder = excluded.holder,
    claimed_until = excluded.claimed_until,
    expires_at = excluded.expires_at,
    result = NULL,
    updated_at = :now
WHERE expires_at <= :now OR (status = 'claimed' AND (claimed_until <= :now OR holder = excluded.holder))
