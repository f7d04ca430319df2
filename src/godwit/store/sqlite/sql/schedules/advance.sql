-- Takes a rule's status, next and last time, occurrences, skipped times, problem and id.
UPDATE schedules SET
    status = ?1, next_fire_at = ?2, last_fire_at = ?3, occurrences = ?4, skipped = ?5, problem = ?6,
    updated_at = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
WHERE id = ?7
