-- $1 reader. Returns how far it has got in each shard.
SELECT shard, epoch, seq FROM journal_readers WHERE reader = $1
