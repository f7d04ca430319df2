-- $1 pipeline. Lets one batch of a pipeline publish at a time, also before it has a position that could be locked.
SELECT pg_advisory_xact_lock(hashtext('godwit pipeline ' || $1))
