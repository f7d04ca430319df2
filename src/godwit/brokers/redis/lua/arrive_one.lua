-- Store one message for a queue with one group: the shortest way for what `arrive` does too. Most publishes are such.
--
-- KEYS   1 meta, 2 journal, 3 dedup0, 4 dedup1, 5 later, 6 wake, 7 expiring, 8 the stream of the message's lane
-- ARGV   1 time, 2 queue, 3 version of the queue's settings, 4 group, 5 field of meta with what the group holds, 6 dedup
--        window in ms, 7 MessagePack of max_size, max_bytes (0: no limit) or empty when there are none,
--        8 the lane's digit, 9 size, 10 expiry or empty, 11 MessagePack of the journal's rows (see brokers/redis/publish/fast_command.py),
--        12 the id as it is remembered (empty without a window), 13 blob, with the expiry in front when there is one
-- Gives  what `arrive` gives. It leaves to `publish` what is not so simple: a limit in reach, an id that may be known,
--        ids of another time to forget, a message that expires before one that came earlier.
-- Begins with a command that is refused above maxmemory.
local pack, unpack_limit, format, call = cmsgpack.pack, cmsgpack.unpack_limit, string.format, redis.call
local meta, field = KEYS[1], ARGV[5]
local kept = call('HMGET', meta, 'epoch', 'v', 's', field)
if kept[2] ~= ARGV[3] then return 0 end
if not kept[3] or not kept[4] then return 2 end
--@include _brief
local _, depth, bytes, leased_bytes, flow, e0, e1, e2, e3, rung = unpack_limit(kept[4], 9, 0)
depth, bytes = depth + 1, bytes + ARGV[9]
if ARGV[7] ~= '' then
  local _, max_size, max_bytes = unpack_limit(ARGV[7], 2, 0)
  if (max_size > 0 and depth > max_size) or (max_bytes > 0 and bytes > max_bytes) then return 2 end
end

-- See _copies.lua for the forms of a lane's entry.
local id, first = nil, false
if ARGV[10] == '' then
  id = format('%d-%d', pseq + 1, now)
else
  local expiry, lane = tonumber(ARGV[10]), ARGV[8]
  local latest = lane == '0' and e0 or lane == '1' and e1 or lane == '2' and e2 or e3
  if expiry < latest then return 2 end
  if lane == '0' then e0 = expiry elseif lane == '1' then e1 = expiry elseif lane == '2' then e2 = expiry else e3 = expiry end
  first = latest == 0
  id = format('%d-8%015d', pseq + 1, now)
end

local window, mark = tonumber(ARGV[6]), ARGV[12]
if window > 0 then
  local other = until1
  if generation == 1 then other = until0 end
  if other <= now then
    if now - began >= window then return 2 end
  else
    local known = call('HGET', KEYS[4 - generation], mark)
    if known and tonumber(known) > now then return 2 end
  end
  if until_later > now then
    local known = call('ZSCORE', KEYS[5], mark)
    if known and tonumber(known) > now then return 2 end
  end
end

-- The first command that writes is refused above maxmemory, and by a key of another type.
if rung == 0 then
  call('ZADD', KEYS[6], 0, 'w')
  rung = ARGV[8] + 2 -- says also which lane, for pull_one
end
if first then call('ZADD', KEYS[7], ARGV[10], 'L' .. ARGV[8]) end
if window > 0 then
  local noted = redis.pcall('HSETNX', KEYS[3 + generation], mark, format('%d', now + window))
  if noted == 0 then return 2 end
  if type(noted) == 'table' then
    if first then call('ZREM', KEYS[7], 'L' .. ARGV[8]) end
    return noted
  end
  if generation == 0 then until0 = math.max(until0, now + window) else until1 = math.max(until1, now + window) end
end
local chunk = '\152' .. pack(2, kept[1], seq + 1, now, ARGV[2], pseq + 1) .. '\146' .. pack(ARGV[4], depth) .. ARGV[11]
local stored = redis.pcall('XADD', KEYS[8], id, 'e', ARGV[13])
local problem, noted = type(stored) == 'table' and stored, nil
if not problem then
  noted = redis.pcall('XADD', KEYS[2], format('%d-0', seq + 1), 'c', chunk)
  problem = type(noted) == 'table' and noted
  if not problem then
    local saved = redis.pcall('HSET', meta, 's', pack(seq + 1, now, pseq + 1, turn, journal_bytes + #chunk, published + 1,
      generation, began, until0, until1, until_later), field, pack(depth, bytes, leased_bytes, flow, e0, e1, e2, e3, rung))
    problem = type(saved) == 'table' and saved
  end
end
if problem then -- a key of another type in the way, which nobody could foresee, leaves nothing behind
--@include _unwrite
  -- The number is given again, maybe in the same millisecond: the lane goes on behind all that it was given before.
  if type(noted) == 'string' then unwrite(KEYS[2], noted, format('%d-0', seq)) end
  if type(stored) == 'string' then unwrite(KEYS[8], stored, format('%d-9%015d', pseq, turn)) end
  if first then call('ZREM', KEYS[7], 'L' .. ARGV[8]) end
  if window > 0 then call('HDEL', KEYS[3 + generation], mark) end
  return problem
end
return 1
