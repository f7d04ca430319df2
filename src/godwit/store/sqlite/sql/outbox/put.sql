-- message id, queue, envelope. In the application's transaction: adds a message.
INSERT INTO outbox (message_id, queue_name, envelope) VALUES (?, ?, ?)
