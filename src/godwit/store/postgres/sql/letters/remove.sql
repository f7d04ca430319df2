-- $1 letter ids. Deletes them and returns the ids of those that existed.
DELETE FROM kept_letters WHERE letter_id = ANY ($1::text[]) RETURNING letter_id
