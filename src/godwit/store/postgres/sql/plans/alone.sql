-- $1 campaign. Waits until no other transaction plans the campaign, and keeps others waiting until this one ends.
SELECT pg_advisory_xact_lock(hashtextextended('godwit plan ' || $1, 0))
