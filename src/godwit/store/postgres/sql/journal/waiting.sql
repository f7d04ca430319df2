-- $1 shard or NULL. Returns the shards, or this one, that have steps without a number.
SELECT DISTINCT shard FROM journal_arrivals WHERE $1::text IS NULL OR shard = $1
