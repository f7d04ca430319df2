-- name, queue. A group whose creation was trimmed away.
INSERT INTO consumer_groups (name, queue_name, configuration) VALUES (?, ?, '{}') ON CONFLICT DO NOTHING
