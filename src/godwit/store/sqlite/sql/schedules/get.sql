-- Takes an id. Returns the rule.
SELECT * FROM schedules WHERE id = ?1
