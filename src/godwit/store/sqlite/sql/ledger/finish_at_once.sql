-- :key, :holder, :now, :expires_at. In the transaction of the effect: done with it or not at all.
INSERT INTO idempotency_ledger (key, status, holder, claimed_until, expires_at)
VALUES (:key, 'done', :holder, :now, :expires_at)
ON CONFLICT (key) DO UPDATE SET
    status = 'done',
    holder = excluded.holder,
    claimed_until = excluded.claimed_until,
    expires_at = excluded.expires_at,
    result = NULL,
    updated_at = :now
WHERE expires_at <= :now OR (status = 'claimed' AND (claimed_until <= :now OR holder = excluded.holder))
