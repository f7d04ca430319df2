-- Messages whose copies wait to be carried out.
INSERT OR REPLACE INTO temp.touched_messages SELECT message_id, max(updated_at) FROM temp.incoming_deliveries GROUP BY message_id
