-- $1 key, $2 holder, $3 how long it is remembered. In the transaction of the effect: done with it or not at all.
-- A second transaction waits here for the first. Returns nothing when the key is not to be had.
INSERT INTO idempotency_ledger AS entry (key, status, holder, claimed_until, expires_at)
VALUES ($1, 'done', $2, now(), now() + $3)
ON CONFLICT (key) DO UPDATE SET
    status = 'done',
    holder = excluded.holder,
    claimed_until = excluded.claimed_until,
    expires_at = excluded.expires_at,
    result = NULL,
    updated_at = now()
WHERE
    entry.expires_at <= clock_timestamp()
    OR (entry.status = 'claimed' AND (entry.claimed_until <= clock_timestamp() OR entry.holder = excluded.holder))
RETURNING key
