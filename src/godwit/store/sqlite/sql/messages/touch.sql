-- message id, when. Messages whose copies changed; the row of values is repeated as often as there are messages.
INSERT OR REPLACE INTO temp.touched_messages VALUES (?, ?)
