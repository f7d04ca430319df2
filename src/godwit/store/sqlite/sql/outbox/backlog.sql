-- Returns how many messages wait and since when the oldest does.
SELECT count(*) AS waiting, min(created_at) AS oldest FROM outbox
