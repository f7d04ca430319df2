-- Takes ids. Deletes firings that were copied to history in the same transaction.
DELETE FROM schedule_firings WHERE id IN (SELECT value FROM json_each(?1))
