-- Store messages for every group of a queue: the fast way for what `publish` does too, where all of them are new, fit
-- and are ready at once.
--
-- KEYS   1 meta, 2 journal, 3 dedup0, 4 dedup1, 5 later, then for each group: wake, expiring, and the streams of the
--        lanes that occur
-- ARGV   1 time, 2 queue, 3 version of the queue's settings, 4 MessagePack of number of messages n, sum of all sizes,
--        dedup window in ms, max_size, max_bytes (0: no limit), the name of the chunk that has to be stored before, its
--        own name (both empty without a chunk before or behind it; see brokers/redis/publish/pipelined.py),
--        5 a digit for each lane that occurs, 6 a digit
--        for the place of each message's lane among those, or empty when there is one, 7 MessagePack [expiry of each
--        message (0 for none), ...] or empty when none expires, 8 MessagePack of the journal's rows (see
--        brokers/redis/publish/fast_command.py), then the groups' names; n ids as they are remembered (none without a window), n blobs,
--        of messages that expire with their expiry in front.
-- Gives  1 when they are stored; 0 when the settings have another version; 2 when a limit may be reached or an id may be
--        known, so that `publish` has to look at each, or when the chunk before is not stored. Nothing has changed then.
-- Begins with a command that is refused above maxmemory.
local pack, unpack_limit, format, call, try = cmsgpack.pack, cmsgpack.unpack_limit, string.format, redis.call, redis.pcall
local meta, used = KEYS[1], ARGV[5]
local BLOCK = 2 + #used
local groups, fields = (#KEYS - 5) / BLOCK, {}
for g = 1, groups do fields[g] = 'g:' .. ARGV[8 + g] end
local kept = call('HMGET', meta, 'epoch', 'v', 's', unpack(fields))
if kept[2] ~= ARGV[3] then return 0 end
if not kept[3] or groups > 1000 then return 2 end
--@include _brief
local _, n, total, window, max_size, max_bytes, before, name = unpack_limit(ARGV[4], 7, 0)
-- Chunks are remembered by their names as messages are by their ids.
if before ~= '' and call('HEXISTS', KEYS[3], before) + call('HEXISTS', KEYS[4], before) == 0 then return 2 end
local marks = 8 + groups
local blobs = window > 0 and marks + n or marks
local places, expiries = ARGV[6], ARGV[7] ~= '' and cmsgpack.unpack(ARGV[7])

-- What each group holds; see _step.lua for the order.
local DEPTH, BYTES, LANE, RUNG, held = 2, 3, 6, 10, {}
for g = 1, groups do
  local group = {unpack_limit(kept[3 + g], 9, 0)}
  local depth, bytes = group[DEPTH] + n, group[BYTES] + total
  if (max_size > 0 and depth > max_size) or (max_bytes > 0 and bytes > max_bytes) then return 2 end
  group[DEPTH], group[BYTES], held[g] = depth, bytes, group
end

-- Two generations of ids, each for at least one window; what is due later has a set of its own. A single new id is looked
-- for and remembered with one command.
local at_once = n == 1 and window > 0
local rotates = window > 0 and now - began >= window and (generation == 0 and until1 or until0) <= now
if window > 0 then
  local current = at_once and not rotates and 3 + generation
  for place = 3, 5 do
    local till = place == 3 and until0 or place == 4 and until1 or until_later
    if till > now and place ~= current then
      local found = call(place == 5 and 'ZMSCORE' or 'HMGET', KEYS[place], unpack(ARGV, marks + 1, marks + n))
      for i = 1, n do
        if found[i] and tonumber(found[i]) > now then return 2 end
      end
    end
  end
end

-- The first command that writes is refused above maxmemory, and by a key of another type.
for g = 1, groups do
  local group = held[g]
  if group[RUNG] == 0 or rotates or n > 1 then call('ZADD', KEYS[6 + (g - 1) * BLOCK], 0, 'w') end
  if n > 1 then
    group[RUNG] = 1
  elseif group[RUNG] == 0 then
    group[RUNG] = used + 2 -- says also which lane, for pull_one
  end
end
if rotates then
  generation, began = 1 - generation, now
  call('UNLINK', KEYS[3 + generation])
end
local remembered, ends_at = KEYS[3 + generation], format('%d', now + window)
if at_once then
  if call('HSETNX', remembered, ARGV[marks + 1], ends_at) == 0 then return 2 end
elseif window > 0 then
  local noted = {}
  for i = 1, n do
    noted[2 * i - 1] = ARGV[marks + i]
    noted[2 * i] = ends_at
  end
  if name ~= '' then
    noted[2 * n + 1] = name
    noted[2 * n + 2] = ends_at
  end
  call('HSET', remembered, unpack(noted))
end
if window > 0 then
  if generation == 0 then until0 = math.max(until0, now + window) else until1 = math.max(until1, now + window) end
end

-- See _copies.lua for the three forms of a lane's entry; the ids of the first two are the same for all groups. Commands
-- may be refused by a key of another type.
local began_turn = turn
local plain, sorted, place, problem, ids = format('%%d-%d', now), format('%%d-8%015d', now), 1, nil, {}
for i = 1, n do ids[i] = format(expiries and expiries[i] > 0 and sorted or plain, pseq + i) end
local holders = groups < 8 and string.char(0x90 + 2 * groups) or string.char(0xdc) .. struct.pack('>I2', 2 * groups)
local late = {} -- members of `expiring`, each behind its key
for g = 1, groups do
  local group, b = held[g], 5 + (g - 1) * BLOCK
  local stream = KEYS[b + 3]
  for i = 1, n do
    if places ~= '' then
      place = string.byte(places, i) - 48
      stream = KEYS[b + 2 + place]
    end
    local expiry, entry, reply = expiries and expiries[i] or 0, ARGV[blobs + i], nil
    if expiry == 0 then
      reply = try('XADD', stream, ids[i], 'e', entry)
    else
      local lane = string.byte(used, place) - 48
      if expiry >= group[LANE + lane] then
        if group[LANE + lane] == 0 then
          late[#late + 1], late[#late + 2] = KEYS[b + 2], 'L' .. lane
          reply = try('ZADD', KEYS[b + 2], expiry, 'L' .. lane)
        end
        group[LANE + lane] = expiry
        if type(reply) ~= 'table' then reply = try('XADD', stream, ids[i], 'e', entry) end
      else
        turn = turn + 1
        local number = pseq + i
        local id, blob = format('%d-9%015d', number, turn), string.sub(entry, unpack_limit(entry, 1, 0) + 1)
        reply = try('XADD', stream, id, 'e', pack(number, lane, now, expiry) .. '\0\0\0\0\144' .. blob)
        if type(reply) ~= 'table' then
          late[#late + 1], late[#late + 2] = KEYS[b + 2], format('%016d:%d:%s', number, lane, id)
          reply = try('ZADD', KEYS[b + 2], format('%d', expiry), late[#late])
        end
      end
    end
    if type(reply) == 'table' then
      problem = reply
      break
    end
  end
  if problem then break end
  holders = holders .. pack(ARGV[8 + g], group[DEPTH])
end
local row
if not problem then
  local chunk = '\152' .. pack(2, kept[1], seq + 1, now, ARGV[2], pseq + 1) .. holders .. ARGV[8]
  seq, journal_bytes = seq + n * groups, journal_bytes + #chunk
  row = try('XADD', KEYS[2], format('%d-0', seq), 'c', chunk)
  problem = type(row) == 'table' and row
  if not problem then
    for g = 1, groups do
      fields[2 * g - 1] = 'g:' .. ARGV[8 + g]
      fields[2 * g] = pack(unpack(held[g], DEPTH, RUNG))
    end
    local reply = try('HSET', meta, 's', pack(seq, now, pseq + n, turn, journal_bytes, published + n, generation, began, until0,
      until1, until_later), unpack(fields))
    problem = type(reply) == 'table' and reply
  end
end

-- A key of another type in the way, which nobody could foresee, leaves nothing behind.
if problem then
--@include _unwrite
  if type(row) == 'string' then unwrite(KEYS[2], row, format('%d-0', seq - n * groups)) end
  for at = 1, #late, 2 do try('ZREM', late[at], late[at + 1]) end
  for g = 1, groups do
    for lane = 3, BLOCK do
      local stream = KEYS[5 + (g - 1) * BLOCK + lane]
      local found = try('XRANGE', stream, pseq + 1, '+')
      for _, entry in ipairs(found) do call('XDEL', stream, entry[1]) end
      -- The number is given again, maybe in the same millisecond: the lane goes on behind all that it was given before.
      if #found > 0 then unwrite(stream, found[#found][1], format('%d-9%015d', pseq, began_turn)) end
    end
  end
  if window > 0 then call('HDEL', remembered, name, unpack(ARGV, marks + 1, marks + n)) end
  return problem
end
return 1
