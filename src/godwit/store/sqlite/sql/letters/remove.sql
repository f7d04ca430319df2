-- letter id. Deletes it and returns its id if it existed.
DELETE FROM kept_letters WHERE letter_id = ? RETURNING letter_id
