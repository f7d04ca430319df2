-- $1 lake, $2 run, $3 paths, $4 datasets, $5 days, $6 rows, $7 bytes, $8 first seqs, $9 last seqs. Lists files.
INSERT INTO lake_manifest (pipeline, run_id, path, dataset, day, row_count, byte_count, first_seq, last_seq)
SELECT $1, $2, path, dataset, day, row_count, byte_count, first_seq, last_seq
FROM unnest($3::text[], $4::text[], $5::date[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[])
    AS new (path, dataset, day, row_count, byte_count, first_seq, last_seq)
