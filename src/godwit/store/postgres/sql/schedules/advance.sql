-- Takes, as arrays, ids of locked rules, their status, next and last time, occurrences, skipped times and problem.
UPDATE schedules SET
    status = new.status, next_fire_at = new.next_fire_at, last_fire_at = new.last_fire_at,
    occurrences = new.occurrences, skipped = new.skipped, problem = new.problem, updated_at = now()
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::integer[], $6::integer[], $7::text[])
    AS new (id, status, next_fire_at, last_fire_at, occurrences, skipped, problem)
WHERE schedules.id = new.id
