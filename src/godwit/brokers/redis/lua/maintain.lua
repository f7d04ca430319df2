-- Do what time asks for in the groups of a queue, without pulling.
--
-- KEYS   1 meta, 2 journal, then 15 keys for each group
-- ARGV   1 time, 2 queue, then the groups' names, last the server's run id
-- Gives  {changes, 1 when more is due than one call may do, numbers (from 1) of the groups that recount.lua has to count}.
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

-- Say whether the counters of a group cannot agree with what is stored, by what the server counts anyway: a copy is in
-- a lane or in the hash, and there leased or in one of the sets that say why it waits.
local FEW = 200 -- so many leases are looked at one by one
local function doubtful(b, held)
  local parked, open = redis.call('HLEN', KEYS[b + PARKED]), redis.call('ZCARD', KEYS[b + LEASES])
  local lanes, waits, least, most = 0, 0, 0, open
  for lane = 0, 3 do
    local length = redis.call('XLEN', KEYS[b + LANE + lane])
    local last = length > 0 and open == 0 and redis.call('HGET', KEYS[b + GROUP], 'c' .. lane)
    if last and #redis.call('XRANGE', KEYS[b + LANE + lane], '-', last, 'COUNT', 1) > 0 then return true end
    lanes = lanes + length
  end
  for _, key in ipairs({AGAIN, DELAYED, BLOCKED}) do waits = waits + redis.call('ZCARD', KEYS[b + key]) end
  if parked ~= waits and open <= FEW then
    most = 0
    for _, member in ipairs(redis.call('ZRANGE', KEYS[b + LEASES], 0, -1)) do
      if string.byte(member) == 112 then most = most + 1 end -- p
    end
    least = most
  end
  return lanes + parked ~= held.depth or parked < waits + least or parked > waits + most or lanes + parked < waits + open
    or (held.bytes ~= 0 and held.depth == 0) or (held.leased ~= 0 and open == 0) or held.bytes < held.leased
    or redis.call('HEXISTS', KEYS[b + GROUP], 'recount') == 1
end

local changes, more, doubts = 0, 0, {}
for g = 1, #ARGV - 3 do
  local b, name = 2 + (g - 1) * BLOCK, ARGV[2 + g]
  local conf, held = configuration(b), gauge(b, name, kept[3 + g])
  if conf then
    if doubtful(b, held) then doubts[#doubts + 1] = g end
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
return {changes, more, doubts}
