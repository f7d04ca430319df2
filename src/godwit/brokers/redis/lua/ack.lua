-- Ack leases of one worker: the fast way for what `settle` does too, for rows that the client could encode.
--
-- KEYS   1 meta, 2 journal, then the group's 15 keys; the group does not keep the order of keys
-- ARGV   1 time, 2 queue, 3 group, 4 worker, 5 number of acks n (at most 200, each lease once), 6 sum of their sizes,
--        7 n journal rows as one text, 8 lengths of these rows and sizes: MessagePack [length, size, ...], then n lease members,
--        n references: what follows the first character of a member, up to the colon
-- Gives  the indexes (from 1) of those that were not, or no longer, leased: they change nothing but the journal.
-- Works above maxmemory.
local fields = {'g:' .. ARGV[3]}
--@include _step
local LANE, PARKED, LEASES, WAKE = 2, 6, 11, 15
local b, name, worker, n, bytes, rows = 2, ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local held, refs = gauge(b, name, kept[4]), 8 + n
if not held then
  local all = {}
  for i = 1, n do all[i] = i end
  return all
end
local scores = redis.call('ZMSCORE', KEYS[b + LEASES], unpack(ARGV, 9, refs))
local refused = {}
for i = 1, n do
  if not scores[i] then refused[#refused + 1] = i end
end

-- Those that are leased, where others are not.
local function each()
  local lengths, at, texts, members = cmsgpack.unpack(ARGV[8]), 0, {}, {}
  bytes = 0
  for i = 1, n do
    if scores[i] then
      members[#members + 1] = ARGV[8 + i]
      texts[#texts + 1] = string.sub(rows, at + 1, at + lengths[2 * i - 1])
      bytes = bytes + lengths[2 * i]
    end
    at = at + lengths[2 * i - 1]
  end
  rows, n = table.concat(texts), #members
  if n == 0 then return end
  redis.call('ZREM', KEYS[b + LEASES], unpack(members))
end

local asked = n
if #refused == 0 then
  redis.call('ZREM', KEYS[b + LEASES], unpack(ARGV, 9, refs))
else
  redis.call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too
  each()
end
undo(function()
  for i = 1, asked do
    if scores[i] then redis.call('ZADD', KEYS[b + LEASES], scores[i], ARGV[8 + i]) end
  end
end)
for i = 1, asked do
  if scores[i] then
    local from = string.byte(ARGV[8 + i])
    if from == 112 then -- p
      drop('HDEL', KEYS[b + PARKED], ARGV[refs + i])
    else
      drop('XDEL', KEYS[b + LANE + from - 48], ARGV[refs + i])
    end
  end
end
if n > 0 then
  held.depth, held.bytes, held.leased = held.depth - n, held.bytes - bytes, held.leased - bytes
  if held.flow == 1 then
    redis.call('ZADD', KEYS[b + WAKE], 0, 'w')
    held.rung = 1
  end
  write('acked', name, worker, held.depth, array(n) .. rows, n)
end
for _, i in ipairs(refused) do
  local member = ARGV[8 + i]
  if #member > 0 and #member <= 64 then write('ack_refused', name, nil, held.depth, {'\145' .. pack(member)}) end
end
save()
return refused
