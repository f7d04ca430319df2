-- Takes ids. Returns those that are being cancelled.
SELECT id, queue_name, message_id FROM schedule_firings WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'cancelling'
