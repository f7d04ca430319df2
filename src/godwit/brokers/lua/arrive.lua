-- Store messages for every group of a queue: the fast way for what `publish` does too, where all of them are new, fit
-- and are ready at once.
--
-- KEYS   1 meta, 2 journal, 3 dedup0, 4 dedup1, 5 later, then for each group: wake, expiring, and the streams of the
--        lanes that occur
-- ARGV   1 time, 2 queue, 3 version of the queue's settings, 4 MessagePack of number of messages n, sum of all sizes,
--        dedup window in ms, max_size, max_bytes, max_delayed (0: no limit), 5 a digit for each lane that occurs, 6 a digit
--        for the place of each message's lane among those, or empty when there is one, 7 MessagePack [expiry of each
--        message (0 for none), ...] or empty when none expires, 8 MessagePack of the journal's rows (see
--        brokers/redis/arrivals.py), then the groups' names; n ids as they are remembered (none without a window), n blobs.
-- Gives  1 when they are stored; 0 when the settings have another version; 2 when a limit may be reached or an id may be
--        known, so that `publish` has to look at each. Nothing has changed then.
-- Begins with a command that is refused above maxmemory.
local used = ARGV[5]
local BLOCK = 2 + #used
local groups, fields = (#KEYS - 5) / BLOCK, {}
for g = 1, groups do fields[g] = 'g:' .. ARGV[8 + g] end
--@include _step
if version ~= ARGV[3] then return 0 end
local _, n, total, window, max_size, max_bytes, max_delayed = unpack_limit(ARGV[4], 6, 0)
local marks = 8 + groups
local blobs = window > 0 and marks + n or marks
local places, expiries = ARGV[6], ARGV[7] ~= '' and cmsgpack.unpack(ARGV[7])

for g = 1, groups do
  local group = gauge(g, ARGV[8 + g], kept[3 + g])
  group.depth, group.bytes = group.depth + n, group.bytes + total
  if (max_size > 0 and group.depth > max_size) or (max_delayed > 0 and group.depth > max_delayed)
    or (max_bytes > 0 and group.bytes > max_bytes) then return 2 end
end

-- Two generations of ids, each for at least one window; what is due later has a set of its own. A single new id is looked
-- for and remembered with one command.
local at_once = n == 1 and window > 0
local rotates = window > 0 and now - began >= window and (generation == 0 and until1 or until0) <= now
if window > 0 then
  local function known(command, key)
    local found = redis.call(command, key, unpack(ARGV, marks + 1, marks + n))
    for i = 1, n do
      if found[i] and tonumber(found[i]) > now then return true end
    end
    return false
  end
  local current = at_once and not rotates and generation
  if until0 > now and current ~= 0 and known('HMGET', KEYS[3]) then return 2 end
  if until1 > now and current ~= 1 and known('HMGET', KEYS[4]) then return 2 end
  if until_later > now and known('ZMSCORE', KEYS[5]) then return 2 end
end

-- The first command that writes is refused above maxmemory, and by a key of another type.
for g = 1, groups do
  local rings = gauges[g].rung == 0 or rotates or n > 1
  if rings then redis.call('ZADD', KEYS[6 + (g - 1) * BLOCK], 0, 'w') end
  if n > 1 then
    gauges[g].rung = 1
  elseif gauges[g].rung == 0 then
    gauges[g].rung = used + 2 -- says also which lane, for pull_one
  end
end
if rotates then
  generation, began = 1 - generation, now
  redis.call('UNLINK', KEYS[3 + generation])
end
local remembered, ends_at = KEYS[3 + generation], format('%.0f', now + window)
if at_once then
  if redis.call('HSETNX', remembered, ARGV[marks + 1], ends_at) == 0 then return 2 end
elseif window > 0 then
  local noted = {}
  for i = 1, n do
    noted[2 * i - 1] = ARGV[marks + i]
    noted[2 * i] = ends_at
  end
  redis.call('HSET', remembered, unpack(noted))
end
if window > 0 then
  if generation == 0 then until0 = math.max(until0, now + window) else until1 = math.max(until1, now + window) end
end

-- See _copies.lua for the three forms of a lane's entry.
local plain, sorted = format('-%.0f', now), format('-8%015.0f', now)
local function add(group, b, place, i)
  local stream, expiry, number = KEYS[b + 2 + place], expiries and expiries[i] or 0, pseq + i
  if expiry == 0 then
    redis.call('XADD', stream, number .. plain, 'e', ARGV[blobs + i])
    return
  end
  local lane = string.byte(used, place) - 48
  if expiry >= group[lane] then
    if group[lane] == 0 then redis.call('ZADD', KEYS[b + 2], expiry, 'L' .. lane) end
    group[lane] = expiry
    redis.call('XADD', stream, number .. sorted, 'e', pack(expiry) .. ARGV[blobs + i])
  else
    turn = turn + 1
    local id = format('%d-9%015d', number, turn)
    redis.call('XADD', stream, id, 'e', pack(number, lane, now, expiry) .. '\0\0\0\0\144' .. ARGV[blobs + i])
    redis.call('ZADD', KEYS[b + 2], format('%d', expiry), format('%016d:%d:%s', number, lane, id))
  end
end

local function add_all()
  local holders = {array(2 * groups)}
  for g = 1, groups do
    local group, b = gauges[g], 5 + (g - 1) * BLOCK
    for i = 1, n do add(group, b, places == '' and 1 or string.byte(places, i) - 48, i) end
    holders[g + 1] = pack(group.name, group.depth)
  end
  store('\152' .. pack(2, epoch, seq + 1, now, queue, pseq + 1) .. table.concat(holders) .. ARGV[8], n * groups)
end

-- A key of another type in the way, which nobody could foresee, leaves nothing behind.
local function undo(problem)
  for g = 1, groups do
    for lane = 3, BLOCK do
      local stream = KEYS[5 + (g - 1) * BLOCK + lane]
      local found = redis.pcall('XRANGE', stream, pseq + 1, '+')
      for _, entry in ipairs(found) do redis.call('XDEL', stream, entry[1]) end
      -- The number is given again, maybe in the same millisecond.
      if #found > 0 then redis.call('XSETID', stream, format('%d-18446744073709551615', pseq)) end
    end
  end
  if window > 0 then redis.call('HDEL', remembered, unpack(ARGV, marks + 1, marks + n)) end
  return redis.error_reply(type(problem) == 'table' and problem.err or problem)
end

local stored, problem = pcall(add_all)
if not stored then return undo(problem) end
pseq, published = pseq + n, published + n
save()
return 1
