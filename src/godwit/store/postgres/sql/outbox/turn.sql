-- One forwarder claims at a time: what another one is just claiming would look due. Ends with the transaction.
SELECT pg_advisory_xact_lock('outbox'::regclass::oid::bigint)
