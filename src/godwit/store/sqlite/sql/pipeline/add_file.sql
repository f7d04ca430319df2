-- :lake, :run and the fields of a file. Lists it.
INSERT INTO lake_manifest (pipeline, run_id, path, dataset, day, row_count, byte_count, first_seq, last_seq)
VALUES (:lake, :run, :path, :dataset, :day, :rows, :bytes, :first_seq, :last_seq)
