-- Takes a run, an id and a number. Returns the last of so many ids that follow it.
SELECT max(id) FROM (SELECT id FROM staging_plan WHERE run_id = ?1 AND id > ?2 ORDER BY id LIMIT ?3)
