-- Included first by every script that changes a queue: its time, its counters and its journal.
-- KEYS[1] meta, KEYS[2] journal; ARGV[1] the time in ms (empty in production: the server's own), ARGV[2] the queue.
-- `fields` are further fields of meta to read; the script has to name them before, and finds them in `kept` from 4 on.
-- `now` never goes back within a queue, and goes on while the clock is behind it. `write` journals rows, `drop` deletes at the end, `save` keeps the counters;
-- call it last. What a script has saved is not taken back any more (see _whole.lua).
local pack, unpack_limit, format = cmsgpack.pack, cmsgpack.unpack_limit, string.format
local meta, journal, queue = KEYS[1], KEYS[2], ARGV[2]
local MANY = 1000 -- so many values at once: Lua's stack has room for 8,000
local kept = redis.call('HMGET', meta, 'epoch', 'v', 's', unpack(fields, 1, math.min(#fields, MANY)))
for from = MANY + 1, #fields, MANY do
  local more = redis.call('HMGET', meta, unpack(fields, from, math.min(from + MANY - 1, #fields)))
  for n = 1, #more do kept[2 + from + n] = more[n] end
end
local epoch, version = kept[1], kept[2]
-- From `generation` on they say which ids are remembered: see arrive.lua.
local seq, now, pseq, turn, journal_bytes, published, generation, began, until0, until1, until_later
  = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
if kept[3] then
  local _
  _, seq, now, pseq, turn, journal_bytes, published, generation, began, until0, until1, until_later
    = unpack_limit(kept[3], 11, 0)
end
local clock = tonumber(ARGV[1])
if not clock then
  local time = redis.call('TIME')
  clock = time[1] * 1000 + math.floor(time[2] / 1000)
end
if clock >= now then
  now = clock
else -- the clock went back: see core/journal/queue_time.py
  local lag, went = redis.call('HGET', meta, 'lag'), -1
  if lag then
    local _, at, since = unpack_limit(lag, 2, 0)
    went = at + math.floor((clock - since) / 2)
  end
  if went >= now then now = went else redis.pcall('HSET', meta, 'lag', pack(now, clock)) end
end

-- What a group holds: messages and bytes, leased bytes, whether flow control is on, per lane the latest expiry of
-- those that are in the order of their expiry (0: there are none; see _copies.lua), and whether a script has added the
-- marker that wakes since the last pull (1, or 2 more than the lane whose only message it is for): whoever took it off will
-- pull. By the number of the key before the group's keys.
local gauges = {}
local saved_pseq, saved_turn = pseq, turn

local function gauge(b, name, packed)
  if not packed then return nil end
  local g, _ = {name = name, saved = packed}, nil
  _, g.depth, g.bytes, g.leased, g.flow, g[0], g[1], g[2], g[3], g.rung = unpack_limit(packed, 9, 0)
  gauges[b] = g
  return g
end

local function array(n)
  if n < 16 then return string.char(0x90 + n) end
  if n < 65536 then return string.char(0xdc) .. struct.pack('>I2', n) end
  return string.char(0xdd) .. struct.pack('>I4', n)
end

local function store(chunk, rows)
  local before = format('%.0f-0', seq)
  seq = seq + rows
  local id = format('%.0f-0', seq)
  journal_bytes = journal_bytes + #chunk
  redis.call('XADD', journal, id, 'c', chunk)
  undo(function() unwrite(journal, id, before) end)
end

-- The one place in Lua where a chunk is put together, but for the compact ones (see layout/compact_chunks.py); `actor`
-- and `app_version` follow the rows where there are any.
local function write(event, group, worker, depth, rows, count, actor, app_version)
  local n = count or #rows -- `count` when the rows are given as one text
  local opening, ending = '\154', ''
  if app_version then
    opening, ending = '\156', pack(actor or nil, app_version)
  elseif actor then
    opening, ending = '\155', pack(actor)
  end
  local from = 1
  while from <= n do
    local to = count and n or math.min(from + MANY - 1, n)
    local texts = count and rows or array(to - from + 1) .. table.concat(rows, '', from, to)
    store(opening .. pack(1, epoch, seq + 1, now, event, queue, group or nil, worker or nil, depth or nil) .. texts
      .. ending, to - from + 1)
    from = to + 1
  end
end

-- Write fields of a hash, by pairs; taken back, they are what they were.
local function put(key, pairs)
  local names = {}
  for n = 1, #pairs, 2 do names[#names + 1] = pairs[n] end
  for from = 1, #names, MANY do
    local to = math.min(from + MANY - 1, #names)
    local before = redis.call('HMGET', key, unpack(names, from, to))
    redis.call('HSET', key, unpack(pairs, 2 * from - 1, 2 * to))
    undo(function()
      for n = from, to do
        local value = before[n - from + 1]
        if value then redis.call('HSET', key, names[n], value) else redis.call('HDEL', key, names[n]) end
      end
    end)
  end
end

-- Count up a field of a hash.
local function count_up(key, field, number)
  local reached = tonumber(redis.call('HGET', key, field) or 0) + number
  put(key, {field, reached})
  return reached
end

local drops, drops_by_key = {}, {}

-- Delete something at the end: an entry (XDEL), a field (HDEL), or a key of its own (UNLINK).
local function drop(command, key, member)
  local place = member and command .. key or command
  local list = drops_by_key[place]
  if not list then
    list = {command = command, key = member and key}
    drops_by_key[place], drops[#drops + 1] = list, list
  end
  list[#list + 1] = member or key
end

local function delete()
  local first = true
  for _, list in ipairs(drops) do
    for from = 1, #list, MANY do
      local function go()
        local to = math.min(from + MANY - 1, #list)
        if list.key then return redis.call(list.command, list.key, unpack(list, from, to)) end
        return redis.call(list.command, unpack(list, from, to))
      end
      -- The first one that fails takes everything back; behind it there is no way back, and `maintain` counts again.
      if first then
        go()
        first = false
        keep()
      elseif not pcall(go) and not pcall(go) then
        for b in pairs(gauges) do redis.call('HSET', KEYS[b + 1], 'recount', 1) end
      end
    end
  end
  drops, drops_by_key = {}, {}
end

local function save()
  local changed, before, at = {
    's', pack(seq, now, pseq, turn, journal_bytes, published, generation, began, until0, until1, until_later),
  }, {kept[3]}, 2
  for _, g in pairs(gauges) do
    changed[at + 1] = 'g:' .. g.name
    changed[at + 2] = pack(g.depth, g.bytes, g.leased, g.flow, g[0], g[1], g[2], g[3], g.rung)
    before[at / 2 + 1], g.saved = g.saved, changed[at + 2]
    at = at + 2
  end
  undo(function()
    for n = 1, at, 2 do
      local value = before[(n + 1) / 2]
      if value then redis.call('HSET', meta, changed[n], value) else redis.call('HDEL', meta, changed[n]) end
    end
  end)
  for from = 1, at, 2 * MANY do redis.call('HSET', meta, unpack(changed, from, math.min(from + 2 * MANY - 1, at))) end
  delete()
  kept[3], saved_pseq, saved_turn = changed[2], pseq, turn
  keep()
end
