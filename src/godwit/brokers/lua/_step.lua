-- Included first by every script that changes a queue: its time, its counters and its journal.
-- KEYS[1] meta, KEYS[2] journal; ARGV[1] the time in ms (empty in production: the server's own), ARGV[2] the queue.
-- `fields` are further fields of meta to read; the script has to name them before, and finds them in `kept` from 4 on.
-- `now` never goes back within a queue. `write` journals one chunk, `save` keeps the counters; call it last.
local pack, unpack_limit, format = cmsgpack.pack, cmsgpack.unpack_limit, string.format
local meta, journal, queue = KEYS[1], KEYS[2], ARGV[2]
local kept = redis.call('HMGET', meta, 'epoch', 'v', 's', unpack(fields))
local epoch, version = kept[1], kept[2]
-- From `generation` on they say which ids are remembered: see arrive.lua.
local seq, now, pseq, turn, journal_bytes, published, generation, began, until0, until1, until_later
  = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
if kept[3] then
  local _
  _, seq, now, pseq, turn, journal_bytes, published, generation, began, until0, until1, until_later
    = unpack_limit(kept[3], 11, 0)
end
if ARGV[1] == '' then
  local time = redis.call('TIME')
  local clock = time[1] * 1000 + math.floor(time[2] / 1000)
  if clock > now then now = clock end
elseif tonumber(ARGV[1]) > now then
  now = tonumber(ARGV[1])
end

-- What a group holds: messages and bytes, leased bytes, whether flow control is on, per lane the latest expiry of
-- those that are in the order of their expiry (0: there are none; see _copies.lua), and whether a script has added the
-- marker that wakes since the last pull (1, or 2 more than the lane whose only message it is for): whoever took it off will
-- pull. By the number of the key before the group's keys.
local gauges = {}

local function gauge(b, name, packed)
  if not packed then return nil end
  local g, _ = {name = name}, nil
  _, g.depth, g.bytes, g.leased, g.flow, g[0], g[1], g[2], g[3], g.rung = unpack_limit(packed, 9, 0)
  gauges[b] = g
  return g
end

local function array(n)
  if n < 16 then return string.char(0x90 + n) end
  return string.char(0xdc, math.floor(n / 256), n % 256)
end

local function store(chunk, rows)
  seq = seq + rows
  journal_bytes = journal_bytes + #chunk
  redis.call('XADD', journal, format('%.0f-0', seq), 'c', chunk)
end

local function write(event, group, worker, depth, rows, count)
  local n = count or #rows -- `count` when the rows are given as one text
  if n == 0 then return end
  local texts = count and rows or array(n) .. table.concat(rows)
  store('\154' .. pack(1, epoch, seq + 1, now, event, queue, group or nil, worker or nil, depth or nil) .. texts, n)
end

local function save()
  local changed, at = {
    's', pack(seq, now, pseq, turn, journal_bytes, published, generation, began, until0, until1, until_later),
  }, 2
  for _, g in pairs(gauges) do
    changed[at + 1] = 'g:' .. g.name
    changed[at + 2] = pack(g.depth, g.bytes, g.leased, g.flow, g[0], g[1], g[2], g[3], g.rung)
    at = at + 2
  end
  redis.call('HSET', meta, unpack(changed))
end
