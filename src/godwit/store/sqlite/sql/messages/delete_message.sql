-- message id.
DELETE FROM queue_messages WHERE message_id = ?
