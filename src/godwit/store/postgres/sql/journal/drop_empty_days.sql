-- Drops the parts of days before yesterday that trimming has emptied; returns their names.
SELECT godwit_drop_days(
    'journal_chunks',
    least((now() AT TIME ZONE 'UTC')::date - 1, (SELECT (min(written_at) AT TIME ZONE 'UTC')::date FROM journal_chunks))
)
