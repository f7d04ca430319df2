-- Takes ids. Marks those that somebody has claimed as being cancelled; returns where their messages may be.
UPDATE schedule_firings SET status = 'cancelling'
WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'queued'
RETURNING id, queue_name, message_id
