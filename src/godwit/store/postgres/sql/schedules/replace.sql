-- Takes a rule whose version is one above the stored one. Returns its id when that held, with the row locked.
UPDATE schedules SET
    queue_name = $2, envelope = $3, cron = $4, timezone = $5, starts_at = $6, ends_at = $7, max_occurrences = $8,
    jitter_ms = $9, misfire = $10, status = $11, next_fire_at = $12, last_fire_at = $13, occurrences = $14,
    skipped = $15, version = $16, problem = NULL, updated_at = now()
WHERE id = $1 AND version = $16 - 1
RETURNING id
