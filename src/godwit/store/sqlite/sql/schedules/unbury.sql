-- Takes ids. Deletes published firings from history that were copied out of it in the same transaction.
DELETE FROM schedule_firings_history WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'published'
