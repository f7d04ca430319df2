-- message id, queue, ordering key, envelope. In the application's transaction: adds a message.
INSERT INTO outbox (message_id, queue_name, ordering_key, envelope) VALUES (?, ?, ?, ?)
