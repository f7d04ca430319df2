-- reader. Releases its hold.
DELETE FROM journal_readers WHERE reader = ?
