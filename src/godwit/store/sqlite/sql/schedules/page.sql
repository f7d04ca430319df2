-- Takes the id before the page, a status or null, a queue or null, and a limit. Returns rules by id.
SELECT *
FROM schedules
WHERE id > ?1 AND (?2 IS NULL OR status = ?2) AND (?3 IS NULL OR queue_name = ?3)
ORDER BY id
LIMIT ?4
