-- Do what time asks for in the groups of a queue, without pulling.
--
-- KEYS   1 meta, 2 journal, then 15 keys for each group
-- ARGV   1 time, 2 queue, then the groups' names, last the server's run id
-- Gives  {changes, 1 when more is due than one call may do}.
-- Works above maxmemory. Any number of processes may call it at once.
local fields = {}
for g = 1, #ARGV - 3 do fields[g] = 'g:' .. ARGV[2 + g] end
--@include _step
--@include _copies
--@include _care
if not epoch then return {0, 0} end
redis.call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too

-- Pulls leave a note of each batch; those whose leases are all settled are forgotten here.
local function forget_batches(b)
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
end

local changes, more = 0, 0
for g = 1, #ARGV - 3 do
  local b, name = 2 + (g - 1) * BLOCK, ARGV[2 + g]
  local conf, held = configuration(b), gauge(b, name, kept[3 + g])
  if conf then
    local done = care(b, name, conf, ARGV[#ARGV])
    forget_batches(b)
    for lane = 0, 3 do
      if held[lane] > 0 and redis.call('XLEN', KEYS[b + LANE + lane]) == 0 then
        redis.call('ZREM', KEYS[b + EXPIRING], 'L' .. lane)
        held[lane] = 0
      end
    end
    for _, key in ipairs({LEASES, EXPIRING, DELAYED}) do
      if #redis.call('ZRANGEBYSCORE', KEYS[b + key], '-inf', now, 'LIMIT', 0, 1) > 0 then more = 1 end
    end
    if done > 0 and ready(b) > 0 then ring(b) end
    changes = changes + done
  end
end
save()
return {changes, more}
