-- Takes a rule. Returns its id when it is new.
INSERT INTO schedules (
    id, queue_name, envelope, cron, timezone, starts_at, ends_at, max_occurrences, jitter_ms, misfire,
    status, next_fire_at, last_fire_at, occurrences, skipped, version
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
ON CONFLICT (id) DO NOTHING
RETURNING id
