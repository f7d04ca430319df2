-- $1 numbers. They are at the broker.
DELETE FROM outbox WHERE number = ANY ($1::bigint[])
