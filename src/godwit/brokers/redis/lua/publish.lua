-- Store one chunk of messages for every group of a queue, whole or not at all.
--
-- KEYS   1 meta, 2 journal, 3 dedup0, 4 dedup1, 5 later, 6 inbox, then 15 keys for each group (see _copies.lua)
-- ARGV   1 time, 2 queue, 3 version of the queue's settings, 4 mode, 5 number of messages n, 6 number of groups,
--        7 max_size, 8 max_bytes, 9 max_delayed (0: no limit), 10 dedup window in ms, 11 sum of all sizes,
--        12 a digit for the lane of each message, then one for the lane of ordered ones, 13 a byte for the number of
--        each message's row middle, 14 odd: MessagePack [[index, deliver_at, expiry, group, dead, number of the middle for
--        groups that keep the order of keys], ...] (0 for none) or empty, 15 words: `twice` when an id occurs twice, `follow`
--        when only that is to be stored of whose key this partition has something, 16 the first bytes of a row, 17 number of row middles m, 18 of those before the ones for groups that keep the order of keys,
--        19 MessagePack [expiry of each message (0 for none), ...] or empty when none expires,
--        20 the application's version or '', then per group: name, 1 when it drops, 1 when it keeps the order of keys;
--        then m row middles (type, priority, lane, key); n ids, n ids as they are remembered, n blobs, n row ends
--        (deliver_at, expires_at, size, ...), and in the modes `moved` and `inbox` n tickets.
-- Modes  '' plain; `moved`: accepted before, the ticket names the dead letter it was, which is moved once; `inbox`: the
--        ticket is the entry of the inbox it came from, which is deleted with the step; a message whose entry is gone
--        is passed over.
-- Gives  {'stale'} when the settings have another version, {'full', group, limit} when a group is full and refuses:
--        nothing has changed then. Else {'ok', indexes of repetitions...}, counted from 1; with `follow` {'part', number of
--        repetitions, their indexes..., indexes of what was not stored...}.
-- Begins with a command that is refused above maxmemory: the marker that wakes, or the time.
local fields = {}
for g = 1, tonumber(ARGV[6]) do fields[g] = 'g:' .. ARGV[18 + 3 * g] end
--@include _step
local GROUP, LANE, PARKED, DELAYED, HEADS, WAKE, BLOCK = 1, 2, 6, 8, 10, 15, 15
local mode, n, groups = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
if version ~= ARGV[3] then return {'stale'} end
local max_size, max_bytes, max_delayed = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local window, total, lanes, codes = tonumber(ARGV[10]), tonumber(ARGV[11]), ARGV[12], ARGV[13]
local twice = string.find(ARGV[15], 'twice', 1, true)
local follow, elsewhere = string.find(ARGV[15], 'follow', 1, true), {}
local row_start, ordered_from, names = ARGV[16], tonumber(ARGV[18]), 20
local middles = names + 3 * groups
local ids = middles + tonumber(ARGV[17])
local marks, blobs, ends, tickets = ids + n, ids + 2 * n, ids + 3 * n, ids + 4 * n
local odd, is_odd = {}, ARGV[14] ~= ''
if is_odd then
  for _, one in ipairs(cmsgpack.unpack(ARGV[14])) do odd[one[1]] = one end
end
local expiries = ARGV[19] ~= '' and cmsgpack.unpack(ARGV[19])

-- Look at everything before the first write: a key of another type ends the script here.
local fill = {}
for g = 1, groups do
  local b = 6 + (g - 1) * BLOCK
  redis.call('HLEN', KEYS[b + PARKED])
  for lane = 0, 3 do redis.call('XLEN', KEYS[b + LANE + lane]) end
  local held = gauge(b, ARGV[names + 3 * g - 2], kept[3 + g])
  fill[g] = {
    b = b, name = ARGV[names + 3 * g - 2], drops = ARGV[names + 3 * g - 1] == '1', ordered = ARGV[names + 3 * g] == '1',
    depth = held.depth, bytes = held.bytes, held = held,
    delayed = is_odd and redis.call('ZCARD', KEYS[b + DELAYED]) or 0,
  }
end

local out, repetitions = {}, {}
if mode == 'inbox' then
  for i = 1, n do
    local entry = ARGV[tickets + i]
    if #redis.call('XRANGE', KEYS[6], entry, entry) == 0 then out[i] = true end
  end
elseif mode == 'moved' then
  local known = redis.call('ZMSCORE', KEYS[5], unpack(ARGV, tickets + 1, tickets + n))
  for i = 1, n do out[i] = known[i] and true or nil end
end

-- Two generations of ids, each for at least one window; what is due later has a set of its own.
if window > 0 and mode ~= 'moved' then
  local function look(known)
    for i = 1, n do
      if known[i] and not out[i] and tonumber(known[i]) > now then
        out[i] = true
        repetitions[#repetitions + 1] = i
      end
    end
  end
  if until0 > now then look(redis.call('HMGET', KEYS[3], unpack(ARGV, marks + 1, marks + n))) end
  if until1 > now then look(redis.call('HMGET', KEYS[4], unpack(ARGV, marks + 1, marks + n))) end
  if until_later > now then look(redis.call('ZMSCORE', KEYS[5], unpack(ARGV, marks + 1, marks + n))) end
  if twice then
    local seen = {}
    for i = 1, n do
      if seen[ARGV[ids + i]] and not out[i] then
        out[i] = true
        repetitions[#repetitions + 1] = i
      end
      seen[ARGV[ids + i]] = true
    end
  end
  if #repetitions > 1 then table.sort(repetitions) end
end

if follow then
  local here = #repetitions
  local function held(key)
    for g = 1, groups do
      if fill[g].ordered and redis.call('HEXISTS', KEYS[fill[g].b + HEADS], key) == 1 then return true end
    end
    return false
  end
  for i = 1, n do
    if not out[i] then
      local _, _, _, _, key = unpack_limit(ARGV[blobs + i], 4, 0)
      if type(key) == 'string' and held(key) then
        here = here + 1
      else
        out[i] = true
        elsewhere[#elsewhere + 1] = i
      end
    end
  end
  if here == 0 then return {'part', 0, unpack(elsewhere)} end
end

local fresh = {}
for i = 1, n do
  if not out[i] then fresh[#fresh + 1] = i end
end

local function size_of(i)
  local _, size = unpack_limit(ARGV[blobs + i], 1, 0)
  return size
end

-- Limits: one sum when all fits for sure, else one by one.
local dropped = {}
for g = 1, groups do
  local group = fill[g]
  local sure = (max_size == 0 or group.depth + n <= max_size)
    and (max_delayed == 0 or not is_odd or group.depth + n <= max_delayed)
    and (max_bytes == 0 or group.bytes + total <= max_bytes)
  if not sure then
    local deep, bytes, delayed = group.depth, group.bytes, group.delayed
    dropped[g] = {}
    for _, i in ipairs(fresh) do
      local one, size = odd[i], size_of(i)
      if not one or one[4] == 0 or one[4] == g then
        local later, limit = one and one[2] > now, nil
        if max_size > 0 and deep >= max_size then limit = 'max_size'
        elseif max_bytes > 0 and bytes + size > max_bytes then limit = 'max_bytes'
        elseif later and max_delayed > 0 and delayed >= max_delayed then limit = 'max_delayed' end
        if not limit then
          deep, bytes, delayed = deep + 1, bytes + size, delayed + (later and 1 or 0)
        elseif mode == 'moved' or not group.drops then
          return {'full', group.name, limit}
        else
          dropped[g][i] = true
        end
      end
    end
  end
end

-- Refused above maxmemory, and by a key of another type, before anything else has changed.
for g = 1, groups do
  redis.call('ZADD', KEYS[fill[g].b + WAKE], 0, 'w')
  fill[g].held.rung = 1
end
if groups == 0 or mode == 'inbox' then redis.call('HSET', meta, 'w', '') end

local function remember_later(pairs)
  redis.call('ZADD', KEYS[5], unpack(pairs))
  undo(function()
    for n = 2, #pairs, 2 do redis.call('ZREM', KEYS[5], pairs[n]) end
  end)
end

if mode == 'moved' then
  local moved = {}
  for _, i in ipairs(fresh) do
    moved[#moved + 1] = now + 600000
    moved[#moved + 1] = ARGV[tickets + i]
  end
  if #moved > 0 then remember_later(moved) end
elseif window > 0 and #fresh > 0 then
  local pairs_now, pairs_later, ends_at = {}, {}, format('%.0f', now + window)
  local at = 0
  for place = 1, #fresh do
    local i = fresh[place]
    local one = is_odd and odd[i]
    if one and one[2] > now then
      pairs_later[#pairs_later + 1] = one[2] + window
      until_later = math.max(until_later, one[2] + window)
      pairs_later[#pairs_later + 1] = ARGV[marks + i]
    else
      pairs_now[at + 1] = ARGV[marks + i]
      pairs_now[at + 2] = ends_at
      at = at + 2
    end
  end
  if #pairs_later > 0 then remember_later(pairs_later) end
  if at > 0 then
    if now - began >= window and (generation == 0 and until1 or until0) <= now then
      generation, began = 1 - generation, now
      redis.call('UNLINK', KEYS[3 + generation])
    end
    local remembered = KEYS[3 + generation]
    redis.call('HSET', remembered, unpack(pairs_now))
    undo(function()
      for n = 1, at, 2 do redis.call('HDEL', remembered, pairs_now[n]) end
    end)
    if generation == 0 then until0 = math.max(until0, now + window) else until1 = math.max(until1, now + window) end
  end
end
if mode == 'inbox' and #fresh + #repetitions > 0 then
  for _, i in ipairs(fresh) do drop('XDEL', KEYS[6], ARGV[tickets + i]) end
  for _, i in ipairs(repetitions) do drop('XDEL', KEYS[6], ARGV[tickets + i]) end
end

local first = pseq
pseq = pseq + #fresh
local tail = format('-%.0f', now)

local function each(group, g)
--@include _copies
  local gone = dropped[g]
  local b = group.b
  local enqueued, scheduled, left_out, dead = {}, {}, {}, {}
  for place, i in ipairs(fresh) do
    local one, number = odd[i] or {i, 0, expiries and expiries[i] or 0, 0, 0, 0}, first + place
    local blob = ARGV[blobs + i]
    local _, bytes, id, kind, key = unpack_limit(blob, 4, 0)
    if one[4] ~= 0 and one[4] ~= g then
      -- addressed to another group
    elseif gone and gone[i] then
      left_out[#left_out + 1] = '\147' .. pack(id, number, bytes)
    else
      local ordered = group.ordered and type(key) == 'string'
      local lane = string.byte(lanes, i) - 48
      if ordered then lane = string.byte(lanes, n + 1) - 48 end
      local c = {
        seq = number, after = number, lane = lane, ready = math.max(now, one[2]), expiry = one[3], attempt = 0,
        failures = 0, crashes = 0, returned = 0, errors = {}, blob = blob, size = bytes, id = id, type = kind, key = key,
      }
      local rows = one[2] > now and scheduled or enqueued
      local copy, copies = g - 1, groups
      if one[4] ~= 0 then copy, copies = 0, 1 end
      rows[#rows + 1] = row_start .. pack(id, number, copy, copies)
        .. ARGV[middles + (ordered and ordered_from + one[6] or string.byte(codes, i))] .. pack(c.ready) .. ARGV[ends + i]
      if one[5] ~= 0 then
        letter(b, c, 'permanent')
        dead[#dead + 1] = end_row(c, nil, 'permanent')
      elseif one[2] == 0 and one[3] == 0 and not ordered then
        add_entry(b, lane, format('%.0f', number) .. tail, blob)
        group.held.depth, group.held.bytes = group.held.depth + 1, group.held.bytes + bytes
      else
        admit(b, c, group.ordered)
      end
    end
  end
  if #left_out > 0 then count_up(KEYS[b + GROUP], 'dropped', #left_out) end
  local after = group.depth + #enqueued + #scheduled
  write('enqueued', group.name, nil, after, enqueued, nil, nil, text(ARGV[20]))
  write('scheduled', group.name, nil, after, scheduled, nil, nil, text(ARGV[20]))
  write('dropped', group.name, nil, after, left_out)
  write('dead_lettered', group.name, nil, after - #dead, dead)
end

for g = 1, groups do each(fill[g], g) end
if #repetitions > 0 then
  local rows = {}
  for place, i in ipairs(repetitions) do rows[place] = '\145' .. pack(ARGV[ids + i]) end
  count_up(meta, 'duplicates', #repetitions)
  write('duplicate', nil, nil, nil, rows)
end
published = published + #fresh
save()
if follow then
  for _, i in ipairs(elsewhere) do repetitions[#repetitions + 1] = i end
  return {'part', #repetitions - #elsewhere, unpack(repetitions)}
end
return {'ok', unpack(repetitions)}
