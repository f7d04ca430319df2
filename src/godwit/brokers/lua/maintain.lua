-- Do what time asks for in one group, without pulling.
--
-- KEYS   1 meta, 2 journal, then the group's 15 keys
-- ARGV   1 time, 2 queue, 3 group, 4 the server's run id
-- Gives  {changes, 1 when more is due than one call may do}; {0, 0} when there is no such group.
-- Works above maxmemory. Any number of processes may call it at once.
--@include _step
--@include _copies
--@include _care
local b, name = 2, ARGV[3]
local conf = configuration(b)
if not conf then return {0, 0} end
redis.call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too
local changes = care(b, name, conf, ARGV[4])
-- Pulls leave a note of each batch; those whose leases are all settled are forgotten here.
local notes, open = redis.call('HLEN', KEYS[b + BATCHES]), redis.call('ZCARD', KEYS[b + LEASES])
if open == 0 and notes > 0 then
  redis.call('UNLINK', KEYS[b + BATCHES])
elseif notes > 2 * open + 64 then
  local used = {}
  for _, member in ipairs(redis.call('ZRANGE', KEYS[b + LEASES], 0, -1)) do
    used[member] = true
    used[string.sub(member, string.find(member, ':', 1, true) + 1)] = true
  end
  for _, field in ipairs(redis.call('HKEYS', KEYS[b + BATCHES])) do
    if not used[field] then redis.call('HDEL', KEYS[b + BATCHES], field) end
  end
end
local more = 0
for _, key in ipairs({LEASES, EXPIRING, DELAYED}) do
  if #redis.call('ZRANGEBYSCORE', KEYS[b + key], '-inf', now, 'LIMIT', 0, 1) > 0 then more = 1 end
end
if ready(b) > 0 and changes > 0 then ring(b) end
save()
return {changes, more}
