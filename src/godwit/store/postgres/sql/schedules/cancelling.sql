-- Takes now and a limit. Returns firings being cancelled whose claim has run out: their publisher is gone.
SELECT id, queue_name, message_id
FROM schedule_firings
WHERE status = 'cancelling' AND claimed_until <= $1
LIMIT $2
