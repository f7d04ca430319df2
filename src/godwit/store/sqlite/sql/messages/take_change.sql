-- Changes of copies; fields in the order of the columns. The row of values is repeated as often as there are copies.
INSERT INTO temp.incoming_deliveries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
