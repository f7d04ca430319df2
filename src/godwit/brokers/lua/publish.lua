-- Store one chunk of messages for every group of a queue, whole or not at all.
--
-- KEYS   1 meta, 2 journal, 3 dedup0, 4 dedup1, 5 later, 6 inbox, then 15 keys for each group (see _copies.lua)
-- ARGV   1 time, 2 queue, 3 version of the queue's settings, 4 mode, 5 number of messages n, 6 number of groups,
--        7 max_size, 8 max_bytes, 9 max_delayed (0: no limit), 10 dedup window in ms, 11 first bytes of a journal row,
--        12 one digit for the lane of each message, 13 odd: MessagePack [[index, deliver_at, expiry, group, dead], ...]
--        (0 for none) or empty, 14 the sizes as MessagePack array,
--        then per group: name, 1 when it drops, 1 when it keeps the order of keys;
--        then n ids, n blobs, n row middles (type, priority, lane, key), n row ends (deliver_at, expires_at, size, ...),
--        n row middles for ordered groups, and in the modes `moved` and `inbox` n tickets.
-- Modes  '' plain; `moved`: accepted before, the ticket names the dead letter it was, which is moved once; `inbox`: the
--        ticket is the entry of the inbox it came from, which is deleted with the step; a message whose entry is gone
--        is passed over.
-- Gives  {'stale'} when the settings have another version, {'full', group, limit} when a group is full and refuses:
--        nothing has changed then. Else {'ok', indexes of repetitions...}, counted from 1.
-- Begins with a command that is refused above maxmemory.
--@include _step
--@include _copies
local mode, n, groups = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
if kept[6] ~= ARGV[3] or not kept[7] then return {'stale'} end
local max_size, max_bytes, max_delayed = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local window, row_start, lanes = tonumber(ARGV[10]), ARGV[11], ARGV[12]
local sizes = cmsgpack.unpack(ARGV[14])
local names = 14
local ids = names + 3 * groups
local blobs, middles, ends, ordered_middles, tickets = ids + n, ids + 2 * n, ids + 3 * n, ids + 4 * n, ids + 5 * n
local odd = {}
if ARGV[13] ~= '' then
  for _, one in ipairs(cmsgpack.unpack(ARGV[13])) do odd[one[1]] = one end
end

-- Look at everything before the first write: a key of another type ends the script here.
local fill = {}
for g = 1, groups do
  local b = 6 + (g - 1) * BLOCK
  local state = redis.call('HMGET', KEYS[b + GROUP], 'bytes', 'letters')
  fill[g] = {
    b = b, name = ARGV[names + 3 * g - 2], drops = ARGV[names + 3 * g - 1] == '1', ordered = ARGV[names + 3 * g] == '1',
    depth = depth(b), bytes = tonumber(state[1] or 0), delayed = redis.call('ZCARD', KEYS[b + DELAYED]),
  }
  redis.call('ZCARD', KEYS[b + WAKE])
end

local absent, repetitions, skipped = {}, {}, {}
if mode == 'inbox' then
  for i = 1, n do
    local entry = ARGV[tickets + i]
    if #redis.call('XRANGE', KEYS[6], entry, entry) == 0 then skipped[i] = true end
  end
elseif mode == 'moved' then
  local known = redis.call('ZMSCORE', KEYS[5], unpack(ARGV, tickets + 1, tickets + n))
  for i = 1, n do skipped[i] = known[i] and true or nil end
end

-- Two generations of ids, each for at least one window; what is due later has a set of its own.
local generation, began, until0, until1
if window > 0 and mode ~= 'moved' then
  local dedup = redis.call('HMGET', meta, 'dg', 'ds', 'd0', 'd1')
  generation, began = dedup[1] or '0', tonumber(dedup[2] or 0)
  until0, until1 = tonumber(dedup[3] or 0), tonumber(dedup[4] or 0)
  local places = {}
  if until0 > now then places[#places + 1] = redis.call('HMGET', KEYS[3], unpack(ARGV, ids + 1, ids + n)) end
  if until1 > now then places[#places + 1] = redis.call('HMGET', KEYS[4], unpack(ARGV, ids + 1, ids + n)) end
  if redis.call('ZCARD', KEYS[5]) > 0 then
    places[#places + 1] = redis.call('ZMSCORE', KEYS[5], unpack(ARGV, ids + 1, ids + n))
  end
  local seen = {}
  for i = 1, n do
    local id = ARGV[ids + i]
    if not skipped[i] then
      local again = seen[id]
      for p = 1, #places do
        local known = places[p][i]
        if known and tonumber(known) > now then again = true end
      end
      if again then repetitions[#repetitions + 1] = i end
      if again then absent[i] = true end
      seen[id] = true
    end
  end
end

local fresh, total = {}, 0
for i = 1, n do
  if not absent[i] and not skipped[i] then
    fresh[#fresh + 1] = i
    total = total + sizes[i]
  end
end

-- Limits: one sum when all fits for sure, else one by one.
local dropped = {}
for g = 1, groups do
  local group = fill[g]
  local sure = (max_size == 0 or group.depth + #fresh <= max_size)
    and (max_delayed == 0 or group.depth + #fresh <= max_delayed)
    and (max_bytes == 0 or group.bytes + total <= max_bytes)
  if not sure then
    local deep, bytes, delayed = group.depth, group.bytes, group.delayed
    dropped[g] = {}
    for _, i in ipairs(fresh) do
      local one = odd[i]
      if not one or one[4] == 0 or one[4] == g then
        local later, limit = one and one[2] > now, nil
        if max_size > 0 and deep >= max_size then limit = 'max_size'
        elseif max_bytes > 0 and bytes + sizes[i] > max_bytes then limit = 'max_bytes'
        elseif later and max_delayed > 0 and delayed >= max_delayed then limit = 'max_delayed' end
        if not limit then
          deep, bytes, delayed = deep + 1, bytes + sizes[i], delayed + (later and 1 or 0)
        elseif mode == 'moved' or not group.drops then
          return {'full', group.name, limit}
        else
          dropped[g][i] = true
        end
      end
    end
  end
end

redis.call('HSET', meta, 'at', now) -- refused above maxmemory, before anything else has changed

if mode == 'moved' then
  local marks = {}
  for _, i in ipairs(fresh) do
    marks[#marks + 1] = now + 600000
    marks[#marks + 1] = ARGV[tickets + i]
  end
  if #marks > 0 then redis.call('ZADD', KEYS[5], unpack(marks)) end
elseif window > 0 and #fresh > 0 then
  local pairs_now, pairs_later, ends_at = {}, {}, now + window
  for _, i in ipairs(fresh) do
    local one = odd[i]
    if one and one[2] > now then
      pairs_later[#pairs_later + 1] = one[2] + window
      pairs_later[#pairs_later + 1] = ARGV[ids + i]
    else
      pairs_now[#pairs_now + 1] = ARGV[ids + i]
      pairs_now[#pairs_now + 1] = ends_at
    end
  end
  if #pairs_later > 0 then redis.call('ZADD', KEYS[5], unpack(pairs_later)) end
  if #pairs_now > 0 then
    local other = generation == '0' and until1 or until0
    if now - began >= window and other <= now then
      generation, began = generation == '0' and '1' or '0', now
      redis.call('UNLINK', KEYS[generation == '0' and 3 or 4])
      redis.call('HSET', meta, 'dg', generation, 'ds', began)
    end
    redis.call('HSET', KEYS[generation == '0' and 3 or 4], unpack(pairs_now))
    local latest = generation == '0' and until0 or until1
    if ends_at > latest then redis.call('HSET', meta, generation == '0' and 'd0' or 'd1', ends_at) end
  end
end
if mode == 'inbox' and #fresh + #repetitions > 0 then
  local entries = {}
  for i = 1, n do
    if not skipped[i] then entries[#entries + 1] = ARGV[tickets + i] end
  end
  redis.call('XDEL', KEYS[6], unpack(entries))
end

local first = pseq
pseq = pseq + #fresh
local packed_now, tail = pack(now), format('-%.0f', now)
for g = 1, groups do
  local group = fill[g]
  local b, gone = group.b, dropped[g]
  local enqueued, scheduled, drops, dead, size = {}, {}, {}, {}, 0
  for place, i in ipairs(fresh) do
    local one, number = odd[i], first + place
    if one and one[4] ~= 0 and one[4] ~= g then
      -- addressed to another group
    elseif gone and gone[i] then
      drops[#drops + 1] = '\147' .. pack(ARGV[ids + i], number, sizes[i])
    elseif not one then
      redis.call('XADD', KEYS[b + LANE + string.byte(lanes, i) - 48], number .. tail, 'e', ARGV[blobs + i])
      size = size + sizes[i]
      enqueued[#enqueued + 1] = row_start .. pack(ARGV[ids + i], number, g - 1, groups) .. ARGV[middles + i]
        .. packed_now .. ARGV[ends + i]
    else
      local blob = ARGV[blobs + i]
      local _, bytes, id, kind, key = unpack_limit(blob, 4, 0)
      local ordered = group.ordered and type(key) == 'string'
      local lane = string.byte(lanes, i) - 48
      if ordered then lane = tonumber(string.sub(lanes, n + 1)) end
      local c = {
        seq = number, after = number, lane = lane, ready = math.max(now, one[2]), expiry = one[3], attempt = 0, failures = 0,
        crashes = 0, returned = 0, errors = {}, blob = blob, size = bytes, id = id, type = kind, key = key,
      }
      local rows = one[2] > now and scheduled or enqueued
      local copy, copies = g - 1, groups
      if one[4] ~= 0 then copy, copies = 0, 1 end
      rows[#rows + 1] = row_start .. pack(id, number, copy, copies) .. ARGV[(ordered and ordered_middles or middles) + i]
        .. pack(c.ready) .. ARGV[ends + i]
      if one[5] ~= 0 then
        letter(b, c, 'permanent')
        dead[#dead + 1] = end_row(c, nil, 'permanent')
      else
        admit(b, c, group.ordered)
      end
    end
  end
  if size > 0 then redis.call('HINCRBY', KEYS[b + GROUP], 'bytes', size) end
  if #enqueued + #scheduled > 0 then ring(b) end
  if #drops > 0 then redis.call('HINCRBY', KEYS[b + GROUP], 'dropped', #drops) end
  local after = group.depth + #enqueued + #scheduled
  write('enqueued', group.name, nil, after, enqueued)
  write('scheduled', group.name, nil, after, scheduled)
  write('dropped', group.name, nil, after, drops)
  write('dead_lettered', group.name, nil, after - #dead, dead)
end
if #repetitions > 0 then
  local rows = {}
  for place, i in ipairs(repetitions) do rows[place] = '\145' .. pack(ARGV[ids + i]) end
  redis.call('HINCRBY', meta, 'duplicates', #repetitions)
  write('duplicate', nil, nil, nil, rows)
end
if #fresh > 0 then redis.call('HINCRBY', meta, 'published', #fresh) end
save()
return {'ok', unpack(repetitions)}
