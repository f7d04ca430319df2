-- $1 reader. Releases its hold.
DELETE FROM journal_readers WHERE reader = $1
