-- Forget ids past the dedup window.
--
-- KEYS   1 meta, 2 journal, 3 dedup0, 4 dedup1, 5 later
-- ARGV   1 time, 2 queue
-- Works above maxmemory.
local fields = {}
--@include _step
redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', now)
if until0 > 0 and until0 <= now then redis.call('UNLINK', KEYS[3]) end
if until1 > 0 and until1 <= now then redis.call('UNLINK', KEYS[4]) end
return 0
