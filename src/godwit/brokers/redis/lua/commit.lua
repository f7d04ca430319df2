-- Register how far a reader of a queue's journal has got: what all have read may be trimmed.
--
-- KEYS   1 meta, 2 readers
-- ARGV   1 time and 2 queue (not used), 3 the epoch of the journal that was read, 4 reader, 5 seq
-- Gives  1, or the epoch of the journal there is when it is another one, '' when there is none: nothing has changed then.
-- Works above maxmemory.
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[3] then return epoch or '' end
redis.call('HDEL', KEYS[2], '') -- allowed above maxmemory; what follows then is, too
redis.call('HSET', KEYS[2], ARGV[4], ARGV[5])
return 1
