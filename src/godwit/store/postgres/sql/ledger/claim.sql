-- $1 key, $2 holder, $3 how long it may be held, $4 how long it is remembered. Claims a key that is new, forgotten,
-- held too long, or held by the same holder; returns nothing when it is not to be had.
INSERT INTO idempotency_ledger AS entry (key, holder, claimed_until, expires_at)
VALUES ($1, $2, now() + $3, now() + $3 + $4)
ON CONFLICT (key) DO UPDATE SET
    status = 'claimed',
    holder = excluded.holder,
    claimed_until = excluded.claimed_until,
    expires_at = excluded.expires_at,
    result = NULL,
    updated_at = now()
WHERE
    entry.expires_at <= now()
    OR (entry.status = 'claimed' AND (entry.claimed_until <= now() OR entry.holder = excluded.holder))
RETURNING key
