-- $1 run, $2 the oldest id that may still be wanted. Deletes what is staged under its id, and what is older.
DELETE FROM staging_plan WHERE run_id = $1 OR run_id < $2
