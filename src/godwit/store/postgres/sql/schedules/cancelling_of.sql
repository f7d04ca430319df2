-- Takes ids. Returns those that are being cancelled.
SELECT id, queue_name, message_id FROM schedule_firings WHERE id = ANY($1::uuid[]) AND status = 'cancelling'
