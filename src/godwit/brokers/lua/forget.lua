-- Forget ids past the dedup window.
--
-- KEYS   1 meta, 2 journal, 3 dedup0, 4 dedup1, 5 later
-- ARGV   1 time, 2 queue
-- Works above maxmemory.
--@include _step
redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', now)
local ends = redis.call('HMGET', meta, 'd0', 'd1')
for n = 1, 2 do
  if ends[n] and tonumber(ends[n]) <= now then
    redis.call('UNLINK', KEYS[2 + n])
    redis.call('HDEL', meta, 'd' .. (n - 1))
  end
end
return 0
