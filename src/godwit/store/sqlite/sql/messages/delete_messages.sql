-- Deletes touched messages without an open copy, once they are in history.
DELETE FROM queue_messages
WHERE message_id IN (
    SELECT touched.message_id
    FROM temp.touched_messages AS touched
    WHERE NOT EXISTS (SELECT 1 FROM queue_deliveries AS open WHERE open.message_id = touched.message_id)
)
