-- Included first by every script that changes a queue: its time, its counters and its journal.
-- KEYS[1] meta, KEYS[2] journal; ARGV[1] the time in ms (empty in production: the server's own), ARGV[2] the queue.
-- `now` never goes back within a queue. `write` journals one chunk, `save` keeps the counters; call it last.
local pack, unpack_limit, format = cmsgpack.pack, cmsgpack.unpack_limit, string.format
local meta, journal, queue = KEYS[1], KEYS[2], ARGV[2]
local kept = redis.call('HMGET', meta, 'epoch', 'seq', 'at', 'pseq', 'turn', 'v', 'spec', 'jb', 'dg', 'ds', 'd0', 'd1',
  'published') -- from 'dg' on for publish.lua
local epoch, seq, pseq, turn = kept[1], tonumber(kept[2] or 0), tonumber(kept[4] or 0), tonumber(kept[5] or 0)
local now
if ARGV[1] == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
else
  now = tonumber(ARGV[1])
end
if kept[3] and tonumber(kept[3]) > now then now = tonumber(kept[3]) end
local journaled = 0

local function array(n)
  if n < 16 then return string.char(0x90 + n) end
  return string.char(0xdc, math.floor(n / 256), n % 256)
end

local function write(event, group, worker, depth, rows, count)
  local n = count or #rows -- `count` when a row is made of several pieces
  if n == 0 then return end
  local chunk = '\154' .. pack(1, epoch, seq + 1, now, event, queue, group or nil, worker or nil, depth or nil)
    .. array(n) .. table.concat(rows)
  seq = seq + n
  journaled = journaled + #chunk
  redis.call('XADD', journal, format('%.0f-0', seq), 'c', chunk)
end

local function save(more) -- `more` are further fields and values
  redis.call('HSET', meta, 'seq', seq, 'at', now, 'pseq', pseq, 'turn', turn, 'jb', tonumber(kept[8] or 0) + journaled,
    unpack(more or {}))
end
